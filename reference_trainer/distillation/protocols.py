"""Protocols of teachers and students in a distillation step, and the batch.

`TopK` describes a teacher by its K most probable tokens and the probability of all others together, the tail. The loss
is the divergence between two distributions of K + 1 outcomes: the K tokens, and the tail. It is never negative, the
student's probability of the tail counts, and K = V gives the loss of the full teacher. The K probabilities are not
renormalised.

`complete_logits` distributes the tail among its tokens in the student's proportions, p_j = p_tail q_j / q_tail. All
tokens of the tail then have the same ratio p_j / q_j. Every divergence of `objective.DIVERGENCES` between the completed
teacher and the student therefore equals the divergence of the K + 1 outcomes, and the derivatives of both are equal, if
the completed teacher is held fixed.

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

    Raise `ShapeError` if a tensor is not integer or the shapes differ.

    Attributes:
        tokens: Integers [B, T].
        labels: Integers [B, T]. labels[b, i] is the label of tokens[b, i], -100 if this token is not predicted: labels
            are not shifted, because `kd_step` shifts them.
        segments: Integers [B, T], the number of each token's document within the row, from 1, and 0 for padding; None
            if every row is one document, with padding only at its end.
        examples: Integers [B], the number of every row in the data, from 0, by which precomputed teacher outputs are
            looked up; None if rows have no numbers.
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
                actual = f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                raise ShapeError(f"invalid {name} of a batch: {actual}, expected an integer tensor [B, T]")
        rows = self.tokens.shape[0]
        if self.examples is not None and (self.examples.dtype not in INTEGERS or self.examples.shape != (rows,)):
            actual = f"{self.examples.dtype} {list(self.examples.shape)}"
            raise ShapeError(
                f"invalid examples of a batch of {rows} rows: {actual}, expected an integer tensor [{rows}]"
            )
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
    """A frozen model. Callers must not change its logits in place: the logits may share memory with the model."""

    @property
    def vocab_size(self) -> int:
        """Return V, the number of tokens that have a logit."""
        ...

    def logits(self, batch: Batch) -> Tensor:
        """Return floating logits [B, T, V] without a graph; logits[b, i] predict the token after tokens[b, i]."""
        ...


@runtime_checkable
class StudentPass(Protocol):
    """One forward pass of a student, and its backward."""

    @property
    def logits(self) -> Tensor:
        """Return floating logits [B, T, V], detached."""
        ...

    def backward(self, logit_gradient: Tensor) -> None:
        """Backpropagate the derivative of the loss with respect to `logits`, floating [B, T, V].

        The caller calls this method at most once, even if it raises.
        """
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


class EvaluatedStudent(Student, Teacher, Protocol):
    """A student that also returns logits without a graph, as a teacher does."""


@runtime_checkable
class FeatureTeacher(Teacher, Protocol):
    """A teacher whose hidden states can be matched."""

    def outputs(self, batch: Batch) -> Outputs:
        """Return logits and hidden states of one forward, without a graph."""
        ...


@runtime_checkable
class FeaturePass(StudentPass, Protocol):
    """A forward pass whose backward also accepts gradients of the hidden states."""

    @property
    def hidden_states(self) -> Sequence[Tensor]:
        """Return the hidden state after each layer, floating [B, T, W], detached."""
        ...

    def backward(self, logit_gradient: Tensor, hidden_gradients: Sequence[Tensor | None] = ()) -> None:
        """Backpropagate the derivatives of the loss with respect to logits and hidden states together.

        Args:
            logit_gradient: The derivative with respect to the logits, floating [B, T, V].
            hidden_gradients: The derivative for each hidden state, floating [B, T, W], or None for 0; empty if all
                are 0.
        """
        ...


@runtime_checkable
class FeatureStudent(Student, Protocol):
    """A student whose hidden states can be matched."""

    def forward_features(self, batch: Batch) -> FeaturePass:
        """Return a new pass over the batch's tokens that has hidden states."""
        ...


def feature_teacher(teacher: object) -> FeatureTeacher:
    """Return the teacher. Raise `ProviderError` unless it has hidden states."""
    if not isinstance(teacher, FeatureTeacher):
        raise ProviderError(_no_hidden_states("teacher", teacher, "outputs(batch)"))
    return teacher


def feature_student(student: object) -> FeatureStudent:
    """Return the student. Raise `ProviderError` unless it has hidden states."""
    if not isinstance(student, FeatureStudent):
        raise ProviderError(_no_hidden_states("student", student, "forward_features(batch)"))
    return student


def _no_hidden_states(model: str, actual: object, method: str) -> str:
    """Return the message for a model without hidden states. model: "teacher" or "student"."""
    return (
        f"the {model} has no hidden states to match: {type(actual).__name__} has no method {method}; use a "
        f"feature_weight of 0 or another {model}"
    )


def checked_logits(model: str, logits: object, tokens_BT: Tensor, vocab_size: int) -> Tensor:
    """Return the logits; raise `ProviderError` unless they are floating [B, T, vocab_size] for these tokens.

    model: "teacher" or "student", for messages.
    """
    if logits is None:
        raise ProviderError(
            f"the {model} returned None instead of logits; probably weights are missing or device initialisation failed"
        )
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        actual = f"a {logits.dtype} tensor" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        raise ProviderError(
            f"the {model} returned {actual}, expected floating logits; probably the module has another output type"
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

    Attributes:
        logits: The shifted logits, floating [..., K].
        tokens: The token of each logit, integers [..., K].
        rest: logsumexp(x / temperature) over the shifted logits x of all other tokens, floating [...]; -inf if the
            probability of these tokens is 0.
        temperature: The temperature of `rest`.
    """

    logits: Tensor
    tokens: Tensor
    rest: Tensor
    temperature: float

    def to(self, device: torch.device) -> TopK:
        """Return the same outputs on a device. Tensors that are already there are not copied."""
        return TopK(self.logits.to(device), self.tokens.to(device), self.rest.to(device), self.temperature)

    def rows(self, places_N: Tensor) -> TopK:
        """Return the outputs at N positions, with the shapes [N, K] and [N].

        places_N: The indices of the positions after all axes but K are flattened.
        """
        at_N = places_N.to(self.rest.device)
        logits_PK, tokens_PK = self.logits.flatten(0, -2), self.tokens.flatten(0, -2)
        return TopK(logits_PK[at_N], tokens_PK[at_N], self.rest.flatten()[at_N], self.temperature)


@runtime_checkable
class TopKTeacher(Protocol):
    """A frozen model that gives only its most probable tokens."""

    @property
    def vocab_size(self) -> int:
        """Return V, the number of tokens that have a logit."""
        ...

    def top_k(self, batch: Batch) -> TopK:
        """Return the most probable tokens of all positions [B, T]. Values at unscored positions are arbitrary."""
        ...


def keep_top_k(logits_NV: Tensor, k: int, temperature: float) -> TopK:
    """Return the k largest logits of every position. Among equal logits, lower token numbers come first.

    Args:
        logits_NV: The logits, floating [..., V].
        k: The number of logits to keep.
        temperature: The temperature at which `rest` is computed: the temperature of the steps that will use the result.
    """
    # A stable sort and not `topk`, whose order of equal logits is not specified and may differ between devices.
    wide_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    sorted_NV, tokens_NV = torch.sort(wide_NV, dim=-1, descending=True, stable=True)
    sorted_NV = sorted_NV - sorted_NV[..., :1]
    rest_N = torch.logsumexp(sorted_NV[..., k:] / temperature, -1)
    return TopK(sorted_NV[..., :k].contiguous(), tokens_NV[..., :k].int(), rest_N, temperature)


def complete_logits(top_k: TopK, student_BTV: Tensor, temperature: float) -> Tensor:
    """Return teacher logits [B, T, V] with the tail distributed in the student's proportions; see the module docstring.

    If the student gives the tail the probability 0, its tokens get equal probabilities. The dtype is the wider dtype of
    both models, at least float32. Raise `SettingError` if `temperature` is not `top_k.temperature`, the only one that
    `rest` is valid for.
    """
    if temperature != top_k.temperature:
        raise SettingError(
            f"the teacher's outputs are for temperature {top_k.temperature:g}, the step has {temperature:g}"
        )
    # For the tokens of the tail, log p_j = log p_tail + log q_j - log q_tail. Both log p and log q are computed up to a
    # constant per row: the constant of log q cancels out, and the constant of log p has no effect on a softmax.
    tokens_BTK, V = top_k.tokens.long(), student_BTV.shape[-1]
    dtype = torch.promote_types(torch.promote_types(student_BTV.dtype, top_k.logits.dtype), torch.float32)
    log_q_BTV = (student_BTV - student_BTV.amax(-1, keepdim=True)).to(dtype).div_(temperature)
    log_q_BTV.scatter_(-1, tokens_BTK, -torch.inf)
    q_tail_BT1 = torch.logsumexp(log_q_BTV, -1, keepdim=True)  # log q_tail
    p_tail_BT1 = top_k.rest[..., None].to(dtype)  # log p_tail
    # log(p_tail / (V - K)), for a tail that has the probability 0 in the student.
    equal_BT1 = p_tail_BT1 - torch.tensor(max(V - tokens_BTK.shape[-1], 1), dtype=dtype, device=p_tail_BT1.device).log()
    log_p_BTV = torch.where(q_tail_BT1 == -torch.inf, equal_BT1, log_q_BTV + (p_tail_BT1 - q_tail_BT1))
    # Back to logits, which the loss divides by the temperature again.
    return log_p_BTV.mul_(temperature).scatter_(-1, tokens_BTK, top_k.logits.to(dtype))
