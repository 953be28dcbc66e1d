"""Attacks on a teacher given by the user. The subject is `reference_trainer.pipeline.teachers`, or has its names."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from falsifiers.support.oracles import refusal_complaint
from falsifiers.teacher_cache.teacher_cases import CONFIG, WEIGHTS, Fetched, bits_of, cut, reconfigure, settings_of
from reference_trainer.models.decoder import Decoder, DecoderConfig
from reference_trainer.storage.export import save_decoder


def _not_finite(path: Path, value: float) -> None:
    weights = load_file(path)
    weights["norm.weight"][3] = value
    save_file({name: tensor.clone() for name, tensor in weights.items()}, path)


UNFIT: dict[str, Callable[[Path], object]] = {
    "no directory": lambda d: [p.unlink() for p in d.iterdir()] + [d.rmdir()],
    "a directory without a model": lambda d: [p.unlink() for p in d.iterdir()],
    "weights cut in half": lambda d: cut(d / WEIGHTS),
    "empty weights": lambda d: cut(d / WEIGHTS, 0),
    "no weights": lambda d: (d / WEIGHTS).unlink(),
    "weights of another shape": lambda d: reconfigure(d / CONFIG, width=32),
    "weights of more layers": lambda d: reconfigure(d / CONFIG, layers=2),
    "another kind of model": lambda d: reconfigure(d / CONFIG, model_type="llama"),
    "an unknown setting": lambda d: reconfigure(d / CONFIG, experts=8),
    "an indivisible width": lambda d: reconfigure(d / CONFIG, heads=3),
    "a configuration that is not an object": lambda d: (d / CONFIG).write_text("[]"),
    "a configuration that is not JSON": lambda d: (d / CONFIG).write_bytes(b"\xff{"),
    "a vocabulary beyond any memory": lambda d: reconfigure(d / CONFIG, vocab_size=10**15),
    "NaN weights": lambda d: _not_finite(d / WEIGHTS, float("nan")),
    "infinite weights": lambda d: _not_finite(d / WEIGHTS, float("-inf")),
}


@given(kind=st.sampled_from(list(UNFIT)))
def falsify_invalid_teacher_is_rejected(subject: Any, kind: str) -> None:
    """A ValueError that names the path, before anything is trained."""
    with tempfile.TemporaryDirectory() as name:
        Fetched(subject, settings_of(Path(name)))
        (directory,) = Path(name).iterdir()
        assert bits_of(subject.load_teacher(directory)), "a cached teacher is rejected"
        UNFIT[kind](directory)
        complaint = refusal_complaint(kind, lambda: subject.load_teacher(directory), str(directory))
    assert complaint is None, complaint


@given(vocabulary=st.sampled_from([255, 257, 2, 512]))
def falsify_teacher_of_other_vocabulary_is_rejected(subject: Any, vocabulary: int) -> None:
    """A ValueError that names the directory."""
    config = DecoderConfig(vocab_size=vocabulary, layers=1, width=4, heads=1)
    with tempfile.TemporaryDirectory() as directory:
        save_decoder(Decoder(config), Path(directory), {})
        complaint = refusal_complaint("another vocabulary", lambda: subject.load_teacher(Path(directory)), directory)
    assert complaint is None, complaint
