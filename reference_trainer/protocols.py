"""What a teacher, a student and a batch are to the distillation step.

Shape letters: B batch, T position, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from reference_trainer.errors import ProviderError, ShapeError

__all__ = ["Batch", "Student", "StudentPass", "Teacher", "checked_logits"]

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Token sequences and which of their tokens count.

    tokens: integers [B, T]. labels: integers [B, T], aligned with the tokens: labels[b, i] is about tokens[b, i], -100
    where that token is not to be predicted. Whoever compares logits with labels shifts, once. Errors: `ShapeError`.
    """

    tokens: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        for name, value in (("tokens", self.tokens), ("labels", self.labels)):
            if not isinstance(value, Tensor) or value.dtype not in _INTEGERS or value.dim() != 2:
                read = f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                raise ShapeError(f"a batch's {name} are {read}; expected a tensor of integers [B, T]")
        if self.tokens.shape != self.labels.shape:
            raise ShapeError(
                f"a batch has tokens {list(self.tokens.shape)} and labels {list(self.labels.shape)}; labels are "
                f"aligned with the tokens, so don't shift them beforehand"
            )


@runtime_checkable
class Teacher(Protocol):
    """A frozen model: it answers, and learns nothing. Answers are read, not written to: they may be the model's own."""

    @property
    def vocab_size(self) -> int: ...

    def logits(self, batch: Batch) -> Tensor:
        """Logits [B, T, V], floating, without a graph; logits[b, i] is about the token after tokens[b, i]."""
        ...


@runtime_checkable
class StudentPass(Protocol):
    """One forward of a student, which waits for its one gradient."""

    @property
    def logits(self) -> Tensor:
        """Logits [B, T, V], floating, detached: read them, don't differentiate them."""
        ...

    def backward(self, logit_gradient: Tensor) -> None:
        """Take the derivative of the loss with respect to these logits, [B, T, V]; once, also if taking it raises."""
        ...


@runtime_checkable
class Student(Protocol):
    """A model that learns from gradients with respect to its logits."""

    @property
    def vocab_size(self) -> int: ...

    def forward(self, batch: Batch) -> StudentPass: ...


def checked_logits(model: str, logits: object, tokens_BT: Tensor, vocab_size: int) -> Tensor:
    """The logits if they are floating [B, T, vocab_size] for these tokens; else `ProviderError` with a likely cause."""
    if logits is None:
        raise ProviderError(
            f"the {model} returned None instead of logits; missing weights or a failed device initialisation?"
        )
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        read = f"a tensor of {logits.dtype}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        raise ProviderError(
            f"the {model} returned {read}; expected floating logits: a module with another kind of output?"
        )
    expected = [*tokens_BT.shape, vocab_size]
    if list(logits.shape[:-1]) == expected[:-1] and logits.shape[-1] != vocab_size:
        raise ProviderError(
            f"the {model} returned logits for a vocabulary of {logits.shape[-1]} and says that its vocab_size is "
            f"{vocab_size}; config and checkpoint disagree on the vocabulary"
        )
    if list(logits.shape) != expected:
        raise ProviderError(
            f"the {model} returned shape {list(logits.shape)}; expected {expected}, one row per token: a model that "
            f"answers for the last position only, or one that takes the batch as its second axis?"
        )
    return logits
