"""Faults of vocabularies of different sizes, as wrong versions of `share_vocabulary` and of public checks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
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


def first_columns_cut(original: Any, teacher: Any, student: Any, mode: str) -> Any:
    """Keep the last columns of the larger model."""
    shared = original(teacher, student, mode)
    if mode != "truncate" or teacher.vocab_size == student.vocab_size:
        return shared
    return _teacher(teacher, student.vocab_size, lambda x: x[..., -student.vocab_size :]), student


def surplus_kept_in_the_softmax(original: Any, teacher: Any, student: Any, mode: str) -> Any:
    """Give the last shared token the probability of the whole surplus, instead of leaving it out of the softmax."""
    shared = original(teacher, student, mode)
    size = student.vocab_size
    if mode != "truncate" or teacher.vocab_size == size:
        return shared

    def folded(x: Tensor) -> Tensor:
        return torch.cat((x[..., : size - 1], x[..., size - 1 :].logsumexp(-1, keepdim=True)), -1)

    return _teacher(teacher, size, folded), student


def gradient_of_the_shared_width(original: Any, teacher: Any, student: Any, mode: str) -> Any:
    """Pass the student a gradient that has the shared vocabulary, not its own."""
    shared = original(teacher, student, mode)
    if shared[1] is student:
        return shared
    size = shared[1].vocab_size
    resized = _student(student, size, lambda x: _widened(x, size, -torch.inf)[..., :size], lambda g, x: g)
    return shared[0], resized


def gradient_in_the_last_columns(original: Any, teacher: Any, student: Any, mode: str) -> Any:
    """Pass the student's gradient to its last columns, not to its first."""
    shared = original(teacher, student, mode)
    if shared[1] is student:
        return shared
    size = shared[1].vocab_size

    def back(gradient: Tensor, logits: Tensor) -> Tensor:
        own = logits.shape[-1]
        return functional.pad(gradient, (max(own - size, 0), 0))[..., -own:]

    return shared[0], _student(student, size, lambda x: _widened(x, size, -torch.inf)[..., :size], back)


def computed_in_float32(original: Any, teacher: Any, student: Any, mode: str) -> Any:
    """Return resized logits in float32, a copy of twice the size for a model in half precision."""
    shared = original(teacher, student, mode)
    resized = _teacher(shared[0], shared[0].vocab_size, lambda x: x.float())
    return resized, _student(shared[1], shared[1].vocab_size, lambda x: x.float(), lambda g, x: g)


def smaller_teacher_accepted(original: Any, teacher: Any, student: Any, mode: str) -> Any:
    """Cut whichever model is larger, also where the mode names the other one."""
    if mode == "pad" or teacher.vocab_size == student.vocab_size:
        return original(teacher, student, mode)
    return original(teacher, student, "truncate" if teacher.vocab_size > student.vocab_size else "truncate-student")


def mode_unchecked(original: Any, teacher: Any, student: Any, mode: str) -> Any:
    """Read every unknown mode as padding."""
    return original(teacher, student, mode if mode in ("truncate", "truncate-student") else "pad")


def drift_hidden(original: Any, teacher: Any, student: Any, mode: str) -> Any:
    """Cut or widen logits whatever their width is."""
    shared = original(teacher, student, mode)
    size = shared[0].vocab_size
    return (
        _teacher(teacher, size, lambda x: _widened(x, size, -torch.inf)[..., :size]),
        _student(
            student,
            size,
            lambda x: _widened(x, size, -torch.inf)[..., :size],
            lambda g, x: _widened(g, x.shape[-1], 0.0)[..., : x.shape[-1]],
        ),
    )


def gradient_unchecked(original: Any, teacher: Any, student: Any, mode: str) -> Any:
    """Cut or widen gradients whatever their width is."""
    shared = original(teacher, student, mode)
    if shared[1] is student:
        return shared
    size = shared[1].vocab_size

    def back(gradient: Tensor, logits: Tensor) -> Tensor:
        return _widened(gradient, logits.shape[-1], 0.0)[..., : logits.shape[-1]]

    return shared[0], _student(student, size, lambda x: _widened(x, size, -torch.inf)[..., :size], back)


def wrapped_always(original: Any, teacher: Any, student: Any, mode: str) -> Any:
    """Wrap models of equal vocabularies too."""
    shared = original(teacher, student, mode)
    return _teacher(shared[0], shared[0].vocab_size, lambda x: x), shared[1]


def mode_ignored(original: Any, teacher: Any, student: Any, mode: str) -> Any:
    """Pad the smaller vocabulary, whatever the mode."""
    return original(teacher, student, "pad")


def bare_numbers(original: Any, *given: Any, **digests: str) -> Any:
    """Return an infinite number as a number, which is no JSON."""
    made = original(*given, **digests)
    held_back = {
        name: {**each, "sum": float(each["sum"]) if isinstance(each["sum"], str) else each["sum"]}
        for name, each in made["held_back"].items()
    }
    return {**made, "held_back": held_back}
