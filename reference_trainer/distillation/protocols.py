"""Protocols of teachers and students, and the batch, as the distillation step uses them.

Of a teacher may be known the K most probable tokens alone, and the mass of the rest: `TopK`. The loss is the divergence
between two distributions of K + 1 outcomes: the kept tokens, and the rest as one, the tail. So it is never negative,
student mass in the tail costs what it costs, and K = V is the whole teacher. Kept probabilities are not renormalised.

`completed` shares the tail out among its tokens as the student does, p_j = p_tail q_j / q_tail. Every such token then
has the ratio p_tail / q_tail, so each divergence of `objective.DIVERGENCES` between the completed teacher and the
student is that of the K + 1 outcomes, and its derivative with the completed teacher held fixed is too.

tau is the temperature. Shape letters: B batch, T position, N positions, V vocabulary, W width, K kept tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from reference_trainer.errors import ProviderError, SettingError, ShapeError

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


@dataclass(frozen=True, slots=True, eq=False)
class TopK:
    """The K largest logits of each position, in decreasing order, shifted so that the first is 0.

    logits: floating [..., K]. tokens: integers [..., K]. rest: floating [...], log-sum-exp of the other shifted logits
    divided by `temperature`; -inf if they have no mass.
    """

    logits: Tensor
    tokens: Tensor
    rest: Tensor
    temperature: float

    def to(self, device: torch.device) -> TopK:
        """Return these positions on a device."""
        return TopK(self.logits.to(device), self.tokens.to(device), self.rest.to(device), self.temperature)

    def rows(self, places_N: Tensor) -> TopK:
        """Return some of the positions, of which all are numbered one after another."""
        at_N = places_N.to(self.rest.device)
        logits_PK, tokens_PK = self.logits.flatten(0, -2), self.tokens.flatten(0, -2)
        return TopK(logits_PK[at_N], tokens_PK[at_N], self.rest.flatten()[at_N], self.temperature)


@runtime_checkable
class TopKTeacher(Protocol):
    """A frozen model of which only the most probable tokens are known."""

    @property
    def vocab_size(self) -> int:
        """Return V, the number of tokens that have a logit."""
        ...

    def top_k(self, batch: Batch) -> TopK:
        """Return what is known at each position [B, T]; unscored positions have any values."""
        ...


def keep_top_k(logits_NV: Tensor, k: int, temperature: float) -> TopK:
    """Return the k largest logits of each position; of equal ones, those of the first tokens."""
    wide_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    sorted_NV, tokens_NV = torch.sort(wide_NV, dim=-1, descending=True, stable=True)
    sorted_NV = sorted_NV - sorted_NV[..., :1]
    rest_N = torch.logsumexp(sorted_NV[..., k:] / temperature, -1)
    return TopK(sorted_NV[..., :k].contiguous(), tokens_NV[..., :k].int(), rest_N, temperature)


def completed(top_k: TopK, student_BTV: Tensor, temperature: float) -> Tensor:
    """Return logits [B, T, V] of a teacher with these tokens, whose tail is shared out as the student does.

    Their dtype is the wider one of both, at least float32. A tail to which the student gives nothing is shared out
    equally. Raise `SettingError` for another temperature: the mass of the rest is known at one.
    """
    if temperature != top_k.temperature:
        raise SettingError(
            f"the teacher's outputs are for temperature {top_k.temperature:g}, the step has {temperature:g}"
        )
    tokens_BTK, V = top_k.tokens.long(), student_BTV.shape[-1]
    dtype = torch.promote_types(torch.promote_types(student_BTV.dtype, top_k.logits.dtype), torch.float32)
    share_BTV = (student_BTV - student_BTV.amax(-1, keepdim=True)).to(dtype).div_(temperature)
    share_BTV.scatter_(-1, tokens_BTK, -torch.inf)
    of_student_BT1 = torch.logsumexp(share_BTV, -1, keepdim=True)
    rest_BT1 = top_k.rest[..., None].to(dtype)
    equal_BT1 = rest_BT1 - torch.tensor(max(V - tokens_BTK.shape[-1], 1), dtype=dtype, device=rest_BT1.device).log()
    share_BTV = torch.where(of_student_BT1 == -torch.inf, equal_BT1, share_BTV + (rest_BT1 - of_student_BT1))
    return share_BTV.mul_(temperature).scatter_(-1, tokens_BTK, top_k.logits.to(dtype))


def teacher_logits(teacher: Teacher | TopKTeacher, batch: Batch, student_BTV: Tensor, temperature: float) -> Tensor:
    """Return the logits that a loss compares with the student's, on its device: the teacher's, or completed ones."""
    if isinstance(teacher, TopKTeacher):
        return completed(teacher.top_k(batch).to(student_BTV.device), student_BTV, temperature)
    teacher_BTV = checked_logits("teacher", teacher.logits(batch), batch.tokens, teacher.vocab_size)
    return teacher_BTV.to(student_BTV.device)
