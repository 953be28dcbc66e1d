"""Attacks on a teacher given by the user. The subject is `reference_trainer.pipeline.teachers`, or has its names."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.oracles import refusal_complaint
from reference_trainer.models.decoder import Decoder, DecoderConfig
from reference_trainer.storage.export import save_decoder


@given(vocabulary=st.sampled_from([255, 257, 2, 512]))
def falsify_teacher_of_other_vocabulary_is_refused(subject: Any, vocabulary: int) -> None:
    config = DecoderConfig(vocab_size=vocabulary, layers=1, width=4, heads=1)
    with tempfile.TemporaryDirectory() as directory:
        save_decoder(Decoder(config), Path(directory), {})
        complaint = refusal_complaint("another vocabulary", lambda: subject.load_teacher(Path(directory)), directory)
    assert complaint is None, complaint
