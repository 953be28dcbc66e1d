"""Protocols of teachers and students, and the batch, as the distillation step uses them.

Shape letters: B batch, T position, V vocabulary, W width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from reference_trainer.errors import ProviderError, ShapeError

__all__ = [
    "INTEGERS",
    "Batch",
    "FeaturePass",
    "FeatureStudent",
    "FeatureTeacher",
    "Outputs",
    "Student",
    "StudentPass",
    "Teacher",
    "checked_logits",
    "feature_student",
    "feature_teacher",
    "placed_segments",
    "segments_on_host",
]

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Token sequences and their labels.

    tokens: integers [B, T]. labels: integers [B, T], labels[b, i] is the label of tokens[b, i], -100
    where that token is not predicted. `kd_step` shifts labels against logits. segments: integers [B, T] that number
    the documents of each row from 1, 0 where there is padding; None if each row is one document, padded at its end if
    at all. examples: integers [B], the number of each row in the data, from 0, by which outputs of a teacher are found
    on disk; None if rows have none. Raise `ShapeError` if a tensor is not integer or the shapes differ.
    """

    tokens: Tensor
    labels: Tensor
    segments: Tensor | None = None
    examples: Tensor | None = None

    def __post_init__(self) -> None:
        tensors = {"tokens": self.tokens, "labels": self.labels}
        if self.segments is not None:
            tensors["segments"] = self.segments
        for name, value in tensors.items():
            if not isinstance(value, Tensor) or value.dtype not in INTEGERS or value.dim() != 2:
                read = f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                raise ShapeError(f"invalid {name} of a batch: {read}, expected an integer tensor [B, T]")
        rows = self.tokens.shape[0]
        if self.examples is not None and (self.examples.dtype not in INTEGERS or self.examples.shape != (rows,)):
            read = f"{self.examples.dtype} {list(self.examples.shape)}"
            raise ShapeError(f"invalid examples of a batch of {rows} rows: {read}, expected an integer tensor [{rows}]")
        if len({value.shape for value in tensors.values()}) > 1:
            shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in tensors.items())
            raise ShapeError(
                f"shapes of a batch do not match: {shapes}; labels are aligned with the tokens (do not shift them)"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Outputs:
    """The outputs of one forward pass: logits [B, T, V], and the hidden state after each layer, floating [B, T, W]."""

    logits: Tensor
    hidden_states: Sequence[Tensor]


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


@runtime_checkable
class FeatureTeacher(Teacher, Protocol):
    """A teacher whose hidden states can be matched."""

    def outputs(self, batch: Batch) -> Outputs:
        """Return logits and hidden states of one forward, without a graph."""
        ...


@runtime_checkable
class FeaturePass(Protocol):
    """A pass that also takes the gradient of its hidden states."""

    @property
    def logits(self) -> Tensor:
        """Return floating logits [B, T, V], detached."""
        ...

    @property
    def hidden_states(self) -> Sequence[Tensor]:
        """Return the hidden state after each layer, floating [B, T, W], detached."""
        ...

    def backward(self, logit_gradient: Tensor, hidden_gradients: Sequence[Tensor | None]) -> None:
        """Apply the derivative of the loss by logits and hidden states together; None is a gradient of 0."""
        ...


@runtime_checkable
class FeatureStudent(Student, Protocol):
    """A student whose hidden states can be matched."""

    def forward_features(self, batch: Batch) -> FeaturePass:
        """Return a new pass over the batch's tokens that keeps its hidden states."""
        ...


def feature_teacher(teacher: Teacher) -> FeatureTeacher:
    """Return the teacher. Raise `ProviderError` unless it has hidden states."""
    if not isinstance(teacher, FeatureTeacher):
        raise ProviderError(_no_hidden_states("teacher", teacher, "outputs(batch)"))
    return teacher


def feature_student(student: Student) -> FeatureStudent:
    """Return the student. Raise `ProviderError` unless it has hidden states."""
    if not isinstance(student, FeatureStudent):
        raise ProviderError(_no_hidden_states("student", student, "forward_features(batch)"))
    return student


def _no_hidden_states(model: str, returned: object, method: str) -> str:
    return (
        f"the {model} has no hidden states to match: {type(returned).__name__} has no method {method}; use a "
        f"feature_weight of 0 or another {model}"
    )


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


def placed_segments(segments_BT: Tensor, device: torch.device) -> Tensor:
    """Return segments on a device. A copy of segments of the CPU keeps them, for `segments_on_host`."""
    placed_BT: Tensor = segments_BT.to(device)
    if segments_BT.device.type == "cpu" and placed_BT is not segments_BT:
        copy: Any = placed_BT  # a tensor takes attributes, which its type does not declare
        copy.on_host = segments_BT
    return placed_BT


def segments_on_host(segments_BT: Tensor) -> Tensor | None:
    """Return segments on the CPU without a wait for the device; None if only the device has them."""
    return segments_BT if segments_BT.device.type == "cpu" else getattr(segments_BT, "on_host", None)
