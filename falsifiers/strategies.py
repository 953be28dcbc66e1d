"""Inputs for attacks on a distillation loss: small, and simplest first, so that a counterexample reads well.

Shape letters: B batch, T position, V vocabulary, K token ids.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from falsifiers import oracles

IGNORED = -100
NO_TOKEN = -math.inf

NEVER, USUAL = st.just("none"), st.just(IGNORED)
HALVES = st.integers(-12, 12).map(lambda k: k / 2)  # exact in every dtype, and mostly asymmetric
LOGITS = HALVES | st.floats(-20, 20)
TEMPERATURES = st.sampled_from([1.0, 2.0, 0.5, 0.25, 20.0]) | st.floats(0.25, 20)
WEIGHTS = st.sampled_from([1.0, 0.0, 0.3]) | st.floats(
    2**-10, 2
)  # float32 holds what the smallest leaves of a gradient
POSITIVE_WEIGHTS = st.sampled_from([1.0, 0.3, 2.0])


def unit_of(subject: Any) -> float:
    """The unit roundoff of the precision in which the subject computes float64 logits: float64, or what it says."""
    return oracles.UNIT_ROUNDOFF[getattr(subject, "ARITHMETIC", torch.float64)]


@dataclass(frozen=True, slots=True, eq=False)
class KdCase:
    """The arguments of one call. student, teacher: logits [B, T, V]; labels [B, T], already aligned with the logits."""

    student: Tensor
    teacher: Tensor
    labels: Tensor
    temperature: float = 1.0
    ce_weight: float = 0.0
    kd_weight: float = 1.0
    ignore_index: int = IGNORED

    def but(self, **changes: Any) -> KdCase:
        return replace(self, **changes)

    @property
    def settings(self) -> dict[str, float]:
        return {"temperature": self.temperature, "ce_weight": self.ce_weight, "kd_weight": self.kd_weight}

    @property
    def scored(self) -> Tensor:
        return self.labels != self.ignore_index

    def arguments(self) -> dict[str, Any]:
        ignored = {} if self.ignore_index == IGNORED else {"ignore_index": self.ignore_index}
        return {**self.settings, **ignored}

    def tensors(self, device: str | None) -> list[Tensor]:
        """Student, teacher and labels, left where they are unless a device is named."""
        return [x if device is None else x.to(device) for x in (self.student, self.teacher, self.labels)]

    def loss(self, subject: Any, device: str | None = None) -> Any:
        return subject.kd_loss(*self.tensors(device), **self.arguments())

    def nats(self, subject: Any, device: str | None = None) -> float:
        return float(self.loss(subject, device).sum)

    def gradient(self, subject: Any, device: str | None = None) -> Tensor:
        gradient: Tensor = subject.kd_logit_gradient(*self.tensors(device), **self.arguments()).cpu()
        assert gradient.shape == self.student.shape, (
            f"the gradient has shape {list(gradient.shape)}, the student's logits {list(self.student.shape)}"
        )
        return gradient

    def autograd(self, subject: Any, device: str | None = None) -> Tensor:
        """The derivative of the subject's own loss, by automatic differentiation."""
        student, teacher, labels = (x.detach() for x in self.tensors(device))
        student = student.clone().requires_grad_()
        loss = subject.kd_loss(student, teacher, labels, **self.arguments())
        try:
            loss.sum.backward()
        except RuntimeError as e:
            raise AssertionError(f"the loss's sum {loss.sum!r} can't be differentiated: {e}") from e
        assert student.grad is not None, "the loss's sum doesn't depend on the student's logits"
        return student.grad.cpu()

    def rows(self) -> Iterator[tuple[tuple[int, int], list[float], list[float], int]]:
        """Each scored position with its student row, teacher row and label, as Python floats."""
        for b, t in self.scored.nonzero().tolist():
            yield (b, t), self.student[b, t].tolist(), self.teacher[b, t].tolist(), int(self.labels[b, t])

    def oracle_nats(self) -> float:
        return math.fsum(oracles.row_loss(s, t, y, **self.settings) for _, s, t, y in self.rows())

    def oracle_gradient(self) -> Tensor:
        gradient = torch.zeros(self.student.shape, dtype=torch.float64)
        for (b, t), s, p, y in self.rows():
            gradient[b, t] = torch.tensor(oracles.row_gradient(s, p, y, **self.settings), dtype=torch.float64)
        return gradient

    def allowed_nats(self, unit: float = oracles.UNIT_ROUNDOFF[torch.float64]) -> float:
        errors = [oracles.allowed_row_loss(s, t, y, **self.settings, unit=unit) for _, s, t, y in self.rows()]
        return math.fsum(errors) + len(errors) * unit  # the last: one rounding of a sum of about one nat a row

    def allowed_gradient(self, unit: float = oracles.UNIT_ROUNDOFF[torch.float64]) -> float:
        errors = (oracles.allowed_row_gradient(s, t, y, **self.settings, unit=unit) for _, s, t, y in self.rows())
        return max(errors, default=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class StepCase:
    """A batch and two tables of logits [K, V]: row k answers for token k. labels are aligned with the tokens."""

    tokens: Tensor
    labels: Tensor
    student: Tensor
    teacher: Tensor
    temperature: float = 1.0
    ce_weight: float = 0.0
    kd_weight: float = 1.0

    def but(self, **changes: Any) -> StepCase:
        return replace(self, **changes)

    @property
    def settings(self) -> dict[str, float]:
        return {"temperature": self.temperature, "ce_weight": self.ce_weight, "kd_weight": self.kd_weight}

    def shifted(self) -> KdCase:
        """The loss that the step is about: logits at i against the label at i + 1."""
        student, teacher = self.student[self.tokens[:, :-1]], self.teacher[self.tokens[:, :-1]]
        return KdCase(student, teacher, self.labels[:, 1:], self.temperature, self.ce_weight, self.kd_weight)

    def oracle_gradient(self) -> Tensor:
        """Of the mean over scored tokens, with respect to all logits [B, T, V]: nothing in the last position."""
        gradient = torch.zeros(*self.tokens.shape, self.student.shape[1], dtype=torch.float64)
        shifted = self.shifted()
        gradient[:, :-1] = shifted.oracle_gradient() / max(int(shifted.scored.sum()), 1)
        return gradient

    def oracle_table(self, learning_rate: float) -> Tensor:
        """The student's table after one step of gradient descent, every element and position added up by hand."""
        table, gradient = self.student.double().clone(), self.oracle_gradient()
        for b, t in torch.ones_like(self.tokens).nonzero().tolist():
            table[self.tokens[b, t]] -= learning_rate * gradient[b, t]
        return table


def tensors(
    shape: tuple[int, ...], elements: st.SearchStrategy[float], dtype: torch.dtype
) -> st.SearchStrategy[Tensor]:
    size = math.prod(shape)
    values = st.lists(elements, min_size=size, max_size=size)
    return values.map(lambda xs: torch.tensor(xs, dtype=torch.float64).to(dtype).reshape(shape))


@st.composite
def impossible_tokens(draw: st.DrawFn, shape: tuple[int, int, int]) -> Tensor:
    """Where a token is banned or padding, [B, T, V] of bool; at least one token of each row is not."""
    B, T, V = shape
    masks = draw(st.lists(st.integers(0, 2**V - 2), min_size=B * T, max_size=B * T))
    bits = [[bool(mask >> v & 1) for v in range(V)] for mask in masks]
    return torch.tensor(bits, dtype=torch.bool).reshape(shape)


@st.composite
def kd_cases(
    draw: st.DrawFn,
    *,
    logits: st.SearchStrategy[float] = LOGITS,
    dtype: torch.dtype = torch.float64,
    temperatures: st.SearchStrategy[float] = TEMPERATURES,
    ce_weights: st.SearchStrategy[float] = WEIGHTS,
    kd_weights: st.SearchStrategy[float] = WEIGHTS,
    banned: st.SearchStrategy[str] = NEVER,
    smallest_vocabulary: int = 1,
    ignored: st.SearchStrategy[int] = USUAL,
) -> KdCase:
    """At least one position is scored. banned: whose logits may be -inf: none, teacher, student, same, or each."""
    shape = draw(st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(smallest_vocabulary, 5)))
    student, teacher = draw(tensors(shape, logits, dtype)), draw(tensors(shape, logits, dtype))
    labels, ignore_index = draw(_labels(shape, ignored))
    student, teacher = _with_banned(draw, student, teacher, draw(banned))
    return KdCase(student, teacher, labels, draw(temperatures), draw(ce_weights), draw(kd_weights), ignore_index)


@st.composite
def _labels(draw: st.DrawFn, shape: tuple[int, int, int], ignored: st.SearchStrategy[int]) -> tuple[Tensor, int]:
    """An ignored label may be a token of the vocabulary too: then that token is never a target."""
    B, T, V = shape
    ignore_index = draw(ignored)
    if V == 1 and ignore_index == 0:  # then no token could be a target
        ignore_index = IGNORED
    usable = [v for v in range(V) if v != ignore_index]
    rest = draw(st.lists(st.sampled_from([*usable, ignore_index]), min_size=B * T, max_size=B * T))
    scored_at = draw(st.integers(0, B * T - 1))
    rest[scored_at] = draw(st.sampled_from(usable))
    return torch.tensor(rest).reshape(B, T), ignore_index


def _with_banned(draw: st.DrawFn, student: Tensor, teacher: Tensor, whose: str) -> tuple[Tensor, Tensor]:
    if whose == "none":
        return student, teacher
    B, T, V = student.shape
    mask = draw(impossible_tokens((B, T, V)))
    other = draw(impossible_tokens((B, T, V))) if whose == "each" else mask
    return (
        student.masked_fill(mask, NO_TOKEN) if whose in ("student", "same", "each") else student,
        teacher.masked_fill(other, NO_TOKEN) if whose in ("teacher", "same", "each") else teacher,
    )


@st.composite
def step_cases(
    draw: st.DrawFn,
    *,
    logits: st.SearchStrategy[float] = HALVES,
    dtype: torch.dtype = torch.float64,
    temperatures: st.SearchStrategy[float] = TEMPERATURES,
    ce_weights: st.SearchStrategy[float] = WEIGHTS,
    kd_weights: st.SearchStrategy[float] = WEIGHTS,
) -> StepCase:
    """At least one token is scored; tokens repeat within and across sequences."""
    B, T, V = draw(st.tuples(st.integers(1, 3), st.integers(2, 4), st.integers(2, 4)))
    K = draw(st.integers(2, 4))
    tokens = draw(st.lists(st.integers(0, K - 1), min_size=B * T, max_size=B * T))
    labels = draw(st.lists(st.sampled_from([*range(V), IGNORED]), min_size=B * T, max_size=B * T))
    scored_at = draw(st.integers(0, B - 1)) * T + draw(st.integers(1, T - 1))
    labels[scored_at] = draw(st.integers(0, V - 1))
    tables = draw(tensors((K, V), logits, dtype)), draw(tensors((K, V), logits, dtype))
    settings = draw(temperatures), draw(ce_weights), draw(kd_weights)
    return StepCase(torch.tensor(tokens).reshape(B, T), torch.tensor(labels).reshape(B, T), *tables, *settings)
