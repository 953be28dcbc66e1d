"""Protocols of teachers and students, and the batch, as the distillation step uses them.

Shape letters: B batch, T position, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from reference_trainer.errors import ProviderError, ShapeError

__all__ = ["INTEGERS", "Batch", "Student", "StudentPass", "Teacher", "checked_logits"]

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Token sequences and their labels.

    tokens: integers [B, T]. labels: integers [B, T], labels[b, i] is the label of tokens[b, i], -100
    where that token is not predicted. `kd_step` shifts labels against logits. segments: integers [B, T] that number
    the documents of each row from 1, 0 where there is padding; None if each row is one document, padded at its end if
    at all. Raise `ShapeError` if a tensor is not integer [B, T] or the shapes differ.
    """

    tokens: Tensor
    labels: Tensor
    segments: Tensor | None = None

    def __post_init__(self) -> None:
        tensors = {"tokens": self.tokens, "labels": self.labels}
        if self.segments is not None:
            tensors["segments"] = self.segments
        for name, value in tensors.items():
            if not isinstance(value, Tensor) or value.dtype not in INTEGERS or value.dim() != 2:
                read = f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                raise ShapeError(f"invalid {name} of a batch: {read}, expected an integer tensor [B, T]")
        if len({value.shape for value in tensors.values()}) > 1:
            shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in tensors.items())
            raise ShapeError(
                f"shapes of a batch do not match: {shapes}; labels are aligned with the tokens (do not shift them)"
            )


@runtime_checkable
class Teacher(Protocol):
    """A frozen model. Its logits are read, never written to: they may share the model's memory."""

    @property
    def vocab_size(self) -> int:
        """Return V, the number of tokens that have a logit."""
        ...

    def logits(self, batch: Batch) -> Tensor:
        """Return floating logits [B, T, V] without a graph; logits[b, i] predict the token after tokens[b, i]."""
        ...


@runtime_checkable
class StudentPass(Protocol):
    """One forward pass of a student; it takes one gradient."""

    @property
    def logits(self) -> Tensor:
        """Return floating logits [B, T, V], detached."""
        ...

    def backward(self, logit_gradient: Tensor) -> None:
        """Apply the derivative of the loss by these logits, [B, T, V]; at most once, even if applying it raises."""
        ...


@runtime_checkable
class Student(Protocol):
    """A model that learns from gradients with respect to its logits."""

    @property
    def vocab_size(self) -> int:
        """Return V, the number of tokens that have a logit."""
        ...

    def forward(self, batch: Batch) -> StudentPass:
        """Return a new pass over the batch's tokens."""
        ...


def checked_logits(model: str, logits: object, tokens_BT: Tensor, vocab_size: int) -> Tensor:
    """Return the logits; raise `ProviderError` unless they are floating [B, T, vocab_size] for these tokens."""
    if logits is None:
        raise ProviderError(
            f"the {model} returned None instead of logits; probably weights are missing or device initialisation failed"
        )
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        read = f"a {logits.dtype} tensor" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        raise ProviderError(
            f"the {model} returned {read}, expected floating logits; probably the module has another output type"
        )
    expected = [*tokens_BT.shape, vocab_size]
    if list(logits.shape[:-1]) == expected[:-1] and logits.shape[-1] != vocab_size:
        raise ProviderError(
            f"the {model} returned logits for a vocabulary of {logits.shape[-1]}, expected vocab_size {vocab_size}; "
            f"probably config and checkpoint differ"
        )
    if list(logits.shape) != expected:
        raise ProviderError(
            f"the {model} returned logits of shape {list(logits.shape)}, expected {expected}; probably the model "
            f"returns the last position only or has the batch as its second axis"
        )
    return logits
