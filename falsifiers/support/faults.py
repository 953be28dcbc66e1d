"""Faults that several contracts plant, and the parts of such faults. `original` is the replaced function."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

Change = Callable[[Tensor], Tensor]


def changed_pass(done: Any, change: Change) -> Any:
    """Return the pass with `change` applied to the gradient before it arrives."""
    return SimpleNamespace(logits=done.logits, backward=lambda gradient: done.backward(change(gradient)))


def changed_student(student: Any, change: Change) -> Any:
    """Return the student with `change` applied to each gradient before it arrives."""
    return SimpleNamespace(
        vocab_size=student.vocab_size, forward=lambda batch: changed_pass(student.forward(batch), change)
    )


def scored_tokens(batch: Any) -> int:
    """Return the number of scored tokens, at least 1."""
    return max(int((batch.labels[:, 1:].long() != -100).sum()), 1)


def evaluating_nothing(module: nn.Module) -> Any:
    return nullcontext()


def not_frozen(original: Any, teacher: Any, module: nn.Module, vocab_size: int, **options: Any) -> None:
    original(teacher, module, vocab_size, **options)
    module.requires_grad_(True)

    def logits(batch: Any) -> Any:
        try:
            return type(teacher).logits(teacher, batch)
        finally:
            module.requires_grad_(True)

    teacher.logits = logits


def labels_not_shifted(original: Any, teacher: Any, student: Any, batch: Any, **settings: Any) -> Any:
    return original(teacher, student, replace(batch, labels=batch.labels.roll(1, 1)), **settings)
