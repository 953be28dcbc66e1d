"""Attacks on a teacher given by the user. The subject is `reference_trainer.pipeline.teachers`, or has its names."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from falsifiers.distill_run.teacher_cases import CONFIG, WEIGHTS, Fetched, bits_of, cut, reconfigure, settings_of
from falsifiers.support.oracles import refusal_complaint


def _not_finite(path: Path, value: float) -> None:
    weights = load_file(path)
    weights["norm.weight"][3] = value
    save_file({name: tensor.clone() for name, tensor in weights.items()}, path)


UNFIT: dict[str, tuple[Callable[[Path], object], str]] = {
    "no directory": (lambda d: [p.unlink() for p in d.iterdir()] + [d.rmdir()], "cannot read"),
    "a directory without a model": (lambda d: [p.unlink() for p in d.iterdir()], "cannot read"),
    "weights cut in half": (lambda d: cut(d / WEIGHTS), "cannot read"),
    "empty weights": (lambda d: cut(d / WEIGHTS, 0), "cannot read"),
    "no weights": (lambda d: (d / WEIGHTS).unlink(), "cannot read"),
    "weights of another shape": (lambda d: reconfigure(d / CONFIG, width=32), "does not match"),
    "weights of more layers": (lambda d: reconfigure(d / CONFIG, layers=2), "does not match"),
    "another kind of model": (lambda d: reconfigure(d / CONFIG, model_type="llama"), "another kind"),
    "an unknown setting": (lambda d: reconfigure(d / CONFIG, experts=8), "experts"),
    "an indivisible width": (lambda d: reconfigure(d / CONFIG, heads=3), "width"),
    "a configuration that is not an object": (lambda d: (d / CONFIG).write_text("[]"), "another kind"),
    "a configuration that is not JSON": (lambda d: (d / CONFIG).write_bytes(b"\xff{"), "cannot read"),
    "a vocabulary beyond any memory": (lambda d: reconfigure(d / CONFIG, vocab_size=10**15), "does not match"),
    "NaN weights": (lambda d: _not_finite(d / WEIGHTS, float("nan")), "finite"),
    "infinite weights": (lambda d: _not_finite(d / WEIGHTS, float("-inf")), "finite"),
}


@given(kind=st.sampled_from(list(UNFIT)))
def falsify_invalid_teacher_is_rejected(subject: Any, kind: str) -> None:
    """A ValueError with the path and the reason, before anything is trained."""
    spoil, words = UNFIT[kind]
    with tempfile.TemporaryDirectory() as name:
        Fetched(subject, settings_of(subject, Path(name)))
        (directory,) = Path(name).iterdir()
        assert bits_of(subject.load_teacher(directory)), "a cached teacher is rejected"
        spoil(directory)
        complaint = refusal_complaint(kind, lambda: subject.load_teacher(directory), str(directory), words)
    assert complaint is None, complaint


@given(vocabulary=st.sampled_from([255, 257, 2, 512]))
def falsify_teacher_of_other_vocabulary_is_rejected(subject: Any, vocabulary: int) -> None:
    """A ValueError with its vocabulary and the one that bytes have."""
    config = subject.DecoderConfig(vocab_size=vocabulary, layers=1, width=4, heads=1)
    with tempfile.TemporaryDirectory() as directory:
        subject.save_decoder(subject.Decoder(config), Path(directory), {})
        words = (str(vocabulary), "256", directory)
        complaint = refusal_complaint("another vocabulary", lambda: subject.load_teacher(Path(directory)), *words)
    assert complaint is None, complaint
