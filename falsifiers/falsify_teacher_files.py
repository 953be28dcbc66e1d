"""Attacks on the teacher that a user names. The subject is `reference_trainer.teachers`, or has its names."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from falsifiers.oracles import refusal_complaint
from falsifiers.teacher_cases import CONFIG, WEIGHTS, Fetched, bits_of, cut, reconfigure, settings_of


def _not_finite(path: Path, value: float) -> None:
    weights = load_file(path)
    weights["norm.weight"][3] = value
    save_file({name: tensor.clone() for name, tensor in weights.items()}, path)


UNFIT: dict[str, tuple[Callable[[Path], object], str]] = {
    "no directory": (lambda d: [p.unlink() for p in d.iterdir()] + [d.rmdir()], "can't be read"),
    "a directory without a model": (lambda d: [p.unlink() for p in d.iterdir()], "can't be read"),
    "weights cut in half": (lambda d: cut(d / WEIGHTS), "can't be read"),
    "empty weights": (lambda d: cut(d / WEIGHTS, 0), "can't be read"),
    "no weights": (lambda d: (d / WEIGHTS).unlink(), "can't be read"),
    "weights of another shape": (lambda d: reconfigure(d / CONFIG, width=32), "doesn't fit"),
    "weights of more layers": (lambda d: reconfigure(d / CONFIG, layers=2), "doesn't fit"),
    "another kind of model": (lambda d: reconfigure(d / CONFIG, model_type="llama"), "another kind"),
    "a setting that isn't known": (lambda d: reconfigure(d / CONFIG, experts=8), "experts"),
    "a width of pairs that don't fit": (lambda d: reconfigure(d / CONFIG, heads=3), "width"),
    "a configuration that is no object": (lambda d: (d / CONFIG).write_text("[]"), "another kind"),
    "a configuration that isn't JSON": (lambda d: (d / CONFIG).write_bytes(b"\xff{"), "can't be read"),
    "a vocabulary beyond any memory": (lambda d: reconfigure(d / CONFIG, vocab_size=10**15), "doesn't fit"),
    "NaN weights": (lambda d: _not_finite(d / WEIGHTS, float("nan")), "finite"),
    "infinite weights": (lambda d: _not_finite(d / WEIGHTS, float("-inf")), "finite"),
}


@given(kind=st.sampled_from(list(UNFIT)))
def falsify_an_unfit_teacher_is_refused(subject: Any, kind: str) -> None:
    """A ValueError that names the place and what is wrong, before anything is trained."""
    spoil, words = UNFIT[kind]
    with tempfile.TemporaryDirectory() as name:
        Fetched(subject, settings_of(subject, Path(name)))
        (directory,) = Path(name).iterdir()
        assert bits_of(subject.loaded(directory)), "a teacher that was kept is refused"
        spoil(directory)
        complaint = refusal_complaint(kind, lambda: subject.loaded(directory), str(directory), words)
    assert complaint is None, complaint


@given(vocabulary=st.sampled_from([255, 257, 2, 512]))
def falsify_a_teacher_of_another_vocabulary_is_refused(subject: Any, vocabulary: int) -> None:
    """A ValueError with its vocabulary and the one that bytes have."""
    config = subject.DecoderConfig(vocab_size=vocabulary, layers=1, width=4, heads=1)
    with tempfile.TemporaryDirectory() as directory:
        subject.save_decoder(subject.Decoder(config), Path(directory), {})
        words = (str(vocabulary), "256", directory)
        complaint = refusal_complaint("another vocabulary", lambda: subject.loaded(Path(directory)), *words)
    assert complaint is None, complaint
