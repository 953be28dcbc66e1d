"""Faulty teachers and students. `original` is the replaced function or method."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from falsifiers.support.faults import changed_pass


def gradient_unseeded(original: Any, student: Any, batch: Any) -> Any:
    return changed_pass(
        original(student, batch), lambda gradient: gradient * (1 + torch.Generator().seed() % 1009 * 1e-4)
    )


def last_input_only(original: Any, student: Any, batch: Any) -> Any:
    student.last_batch = batch

    def backward(gradient: Tensor) -> None:
        original(student, student.last_batch).backward(gradient)

    return SimpleNamespace(logits=original(student, batch).logits, backward=backward)


@contextmanager
def left_in_eval_mode(module: nn.Module) -> Iterator[None]:
    module.eval()
    yield


def nothing_accepted(original: Any, model: str, logits: Any, tokens: Tensor, vocab_size: int) -> Any:
    return logits if logits is None else original(model, logits, tokens, vocab_size)


def vocabulary_accepted(original: Any, model: str, logits: Any, tokens: Tensor, vocab_size: int) -> Any:
    if isinstance(logits, Tensor) and logits.dim() == 3 and logits.shape[:2] == tokens.shape:
        return logits
    return original(model, logits, tokens, vocab_size)
