"""Faults of vocabularies of different sizes, as wrong versions of `share_vocabulary` and of public checks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import Tensor
from torch.nn import functional


def _teacher(model: Any, vocab_size: int, resize: Any) -> Any:
    return SimpleNamespace(vocab_size=vocab_size, logits=lambda batch: resize(model.logits(batch)))


def _student(model: Any, vocab_size: int, resize: Any, back: Any) -> Any:
    def forward(batch: Any) -> Any:
        done = model.forward(batch)
        return SimpleNamespace(
            logits=resize(done.logits), backward=lambda gradient: done.backward(back(gradient, done.logits))
        )

    return SimpleNamespace(vocab_size=vocab_size, forward=forward)


def _widened(x: Tensor, vocab_size: int, value: float) -> Tensor:
    return functional.pad(x, (0, vocab_size - x.shape[-1]), value=value)


def padded_with_zeros(original: Any, teacher: Any, student: Any, mode: str) -> Any:
    """Give the smaller model logits of 0 for the tokens that it lacks, in every mode."""
    original(teacher, student, mode)
    size = max(teacher.vocab_size, student.vocab_size)
    return (
        _teacher(teacher, size, lambda x: _widened(x, size, 0.0)),
        _student(student, size, lambda x: _widened(x, size, 0.0), lambda g, x: g[..., : x.shape[-1]]),
    )


def bare_numbers(original: Any, *given: Any, **digests: str) -> Any:
    """Return an infinite number as a number, which is no JSON."""
    made = original(*given, **digests)
    held_back = {
        name: {**each, "sum": float(each["sum"]) if isinstance(each["sum"], str) else each["sum"]}
        for name, each in made["held_back"].items()
    }
    return {**made, "held_back": held_back}
