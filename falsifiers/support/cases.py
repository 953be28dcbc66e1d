"""Cases for attacks on a distillation loss and step: arguments of a call, strategies for them, and their oracle.

A subject is an object with `kd_loss` and `kd_logit_gradient`. This module does not import the trainer. Strategies draw
small cases, with the simplest values first, so that counterexamples are readable.

Shape letters: B batch, T position, V vocabulary, K token ids.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support import oracles

IGNORED = -100


def unit_of(subject: Any) -> float:
    """Return the unit roundoff of the dtype in which the subject computes: `ARITHMETIC`, by default float64."""
    return oracles.UNIT_ROUNDOFF[getattr(subject, "ARITHMETIC", torch.float64)]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A case with immutable fields."""

    def but(self, **changes: Any) -> Self:
        """Return a copy with these fields replaced."""
        return replace(self, **changes)

    @property
    def settings(self) -> dict[str, float]:
        """Return temperature and weights as keyword arguments."""
        return {name: getattr(self, name) for name in ("temperature", "ce_weight", "kd_weight")}


@dataclass(frozen=True, slots=True, eq=False)
class KdCase(Case):
    """The arguments of one call of a distillation loss.

    Attributes:
        student: Floating logits [B, T, V].
        teacher: Floating logits [B, T, V].
        labels: Integers [B, T]; labels[b, t] is the target of student[b, t].
        temperature: The temperature.
        ce_weight: The weight of the cross-entropy.
        kd_weight: The weight of the divergence.
        ignore_index: The label of a position that is not scored.
        divergence: A key of `oracles.DIVERGENCES`.
        beta: The teacher's share of the mixture of a Jensen-Shannon divergence.
    """

    student: Tensor
    teacher: Tensor
    labels: Tensor
    temperature: float = 1.0
    ce_weight: float = 0.0
    kd_weight: float = 1.0
    ignore_index: int = IGNORED
    divergence: str = "forward_kl"
    beta: float = 0.5

    @property
    def scored(self) -> Tensor:
        """Return the mask of scored positions, bool [B, T]."""
        return self.labels != self.ignore_index

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the call. Optional ones are passed only if they are not the default."""
        optional = {"ignore_index": IGNORED, "divergence": "forward_kl", "beta": 0.5}
        changed = {name: getattr(self, name) for name, default in optional.items() if getattr(self, name) != default}
        return {**self.settings, **changed}

    def tensors(self, device: str | None) -> list[Tensor]:
        """Return student, teacher and labels, moved to the device if one is given."""
        return [x if device is None else x.to(device) for x in (self.student, self.teacher, self.labels)]

    def loss(self, subject: Any, device: str | None = None) -> Any:
        """Return the result of the subject's `kd_loss`, with `.sum` in nats and `.count`."""
        return subject.kd_loss(*self.tensors(device), **self.arguments())

    def nats(self, subject: Any, device: str | None = None) -> float:
        """Return the sum of the subject's `kd_loss` in nats."""
        return float(self.loss(subject, device).sum)

    def gradient(self, subject: Any, device: str | None = None) -> Tensor:
        """Return the subject's closed-form gradient [B, T, V] on CPU; assert its shape."""
        gradient = self.gradient_on_device(subject, device).cpu()
        assert gradient.shape == self.student.shape, f"gradient {gradient.shape}; expected {self.student.shape}"
        return gradient

    def gradient_on_device(self, subject: Any, device: str | None = None) -> Tensor:
        """Return the subject's closed-form gradient, on the device on which the subject computes it."""
        gradient: Tensor = subject.kd_logit_gradient(*self.tensors(device), **self.arguments())
        return gradient

    def autograd(self, subject: Any, device: str | None = None) -> Tensor:
        """Return the derivative [B, T, V] of the subject's own loss on CPU, by automatic differentiation."""
        student, teacher, labels = (x.detach() for x in self.tensors(device))
        student = student.clone().requires_grad_()
        loss = subject.kd_loss(student, teacher, labels, **self.arguments())
        try:
            loss.sum.backward()
        except RuntimeError as e:
            raise AssertionError(f"the sum {loss.sum!r} is not differentiable: {e}") from e
        assert student.grad is not None, "the sum does not depend on the student's logits"
        return student.grad.cpu()

    def rows(self) -> Iterator[tuple[tuple[int, int], list[float], list[float], int]]:
        """Yield each scored position (b, t) with its student row, teacher row and label, as Python numbers."""
        for b, t in self.scored.nonzero().tolist():
            yield (b, t), self.student[b, t].tolist(), self.teacher[b, t].tolist(), int(self.labels[b, t])

    def equation(self) -> oracles.Loss:
        """Return the oracle of the loss of a row."""
        return oracles.Loss(**self.settings, divergence=self.divergence, beta=self.beta)

    def oracle_nats(self) -> float:
        """Return the oracle's loss in nats, summed over scored positions."""
        return math.fsum(self.equation().nats(student, teacher, label) for _, student, teacher, label in self.rows())

    def oracle_gradient(self) -> Tensor:
        """Return the oracle's gradient of the sum, float64 [B, T, V], 0 at unscored positions."""
        gradient = torch.zeros(self.student.shape, dtype=torch.float64)
        for (b, t), *row in self.rows():
            gradient[b, t] = torch.tensor(self.equation().gradient(*row), dtype=torch.float64)
        return gradient

    def allowed_nats(self, unit: float = oracles.UNIT_ROUNDOFF[torch.float64]) -> float:
        """Return the largest rounding error of the sum in nats, for arithmetic with this unit roundoff."""
        errors = [self.equation().allowed_nats(student, teacher, unit) for _, student, teacher, _ in self.rows()]
        # The sum of rows of about one nat adds one rounding per row.
        return math.fsum(errors) + len(errors) * unit

    def allowed_gradient(self, unit: float = oracles.UNIT_ROUNDOFF[torch.float64]) -> float:
        """Return the largest rounding error of an element of the gradient, for arithmetic with this unit roundoff."""
        errors = (self.equation().allowed_gradient(student, teacher, unit) for _, student, teacher, _ in self.rows())
        return max(errors, default=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class StepCase(Case):
    """A batch and the arguments of one distillation step between tables of logits.

    Attributes:
        tokens: Integers [B, T].
        labels: Integers [B, T], unshifted.
        student: Floating [K, V]; row k holds the logits after token k.
        teacher: Floating [K, V], as `student`.
        temperature: The temperature.
        ce_weight: The weight of the cross-entropy.
        kd_weight: The weight of the divergence.
    """

    tokens: Tensor
    labels: Tensor
    student: Tensor
    teacher: Tensor
    temperature: float = 1.0
    ce_weight: float = 0.0
    kd_weight: float = 1.0

    def shifted(self) -> KdCase:
        """Return the case of the step's loss: logits at i with the label at i + 1."""
        student, teacher = self.student[self.tokens[:, :-1]], self.teacher[self.tokens[:, :-1]]
        return KdCase(student, teacher, self.labels[:, 1:], self.temperature, self.ce_weight, self.kd_weight)

    def oracle_gradient(self) -> Tensor:
        """Return the oracle's gradient of the mean over scored tokens, float64 [B, T, V], 0 in the last position."""
        gradient = torch.zeros(*self.tokens.shape, self.student.shape[1], dtype=torch.float64)
        shifted = self.shifted()
        gradient[:, :-1] = shifted.oracle_gradient() / max(int(shifted.scored.sum()), 1)
        return gradient

    def oracle_table(self, learning_rate: float) -> Tensor:
        """Return the student's table [K, V] after one descent step in float64, summed element by element."""
        table, gradient = self.student.double().clone(), self.oracle_gradient()
        for b, t in torch.ones_like(self.tokens).nonzero().tolist():
            table[self.tokens[b, t]] -= learning_rate * gradient[b, t]
        return table


NO_TOKEN = -math.inf
"""The logit of a banned token, which has the probability 0."""
# Strategies for the fields of cases.
NONE_BANNED, DEFAULT_INDEX = st.just("none"), st.just(IGNORED)
HALVES = st.integers(-12, 12).map(lambda k: k / 2)  # exact in every floating dtype
LOGITS = HALVES | st.floats(-20, 20)
TEMPERATURES = st.sampled_from([1.0, 2.0, 0.5, 0.25, 20.0]) | st.floats(0.25, 20)
# With the smallest positive weight, gradients are still normal numbers of float32.
WEIGHTS = st.sampled_from([1.0, 0.0, 0.3]) | st.floats(2**-10, 2)
POSITIVE_WEIGHTS = st.sampled_from([1.0, 0.3, 2.0])
HALF_DTYPES = st.sampled_from([torch.bfloat16, torch.float16])


def tensors(
    shape: tuple[int, ...], elements: st.SearchStrategy[float], dtype: torch.dtype
) -> st.SearchStrategy[Tensor]:
    """Return a strategy for tensors of this shape and dtype, elements rounded from float64."""
    size = math.prod(shape)
    values = st.lists(elements, min_size=size, max_size=size)
    return values.map(lambda xs: torch.tensor(xs, dtype=torch.float64).to(dtype).reshape(shape))


@st.composite
def banned_tokens(draw: st.DrawFn, shape: tuple[int, int, int]) -> Tensor:
    """Draw a mask of banned tokens, bool [B, T, V]; at least one token of every row is not banned."""
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
    banned: st.SearchStrategy[str] = NONE_BANNED,
    smallest_vocabulary: int = 1,
    ignored: st.SearchStrategy[int] = DEFAULT_INDEX,
) -> KdCase:
    """Draw a case with B <= 2, T <= 3, V <= 5 and at least one scored position.

    Args:
        draw: The function that draws, passed by Hypothesis.
        logits: The logits.
        dtype: The dtype of the logits.
        temperatures: The temperature.
        ce_weights: The weight of the cross-entropy.
        kd_weights: The weight of the divergence.
        banned: Which logits may be -inf: `none`, `teacher`, `student`, `same` (both, at the same tokens) or `each`
            (both, at independent tokens).
        smallest_vocabulary: The smallest V.
        ignored: The value of `ignore_index`.
    """
    shape = draw(st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(smallest_vocabulary, 5)))
    student, teacher = draw(tensors(shape, logits, dtype)), draw(tensors(shape, logits, dtype))
    labels, ignore_index = draw(_labels(shape, ignored))
    student, teacher = _with_banned(draw, student, teacher, draw(banned))
    return KdCase(student, teacher, labels, draw(temperatures), draw(ce_weights), draw(kd_weights), ignore_index)


@st.composite
def _labels(draw: st.DrawFn, shape: tuple[int, int, int], ignored: st.SearchStrategy[int]) -> tuple[Tensor, int]:
    """Draw labels [B, T] and ignore_index. If ignore_index is a token of the vocabulary, it is never a target."""
    B, T, V = shape
    ignore_index = draw(ignored)
    if V == 1 and ignore_index == 0:  # otherwise no token could be a target
        ignore_index = IGNORED
    targets = [v for v in range(V) if v != ignore_index]
    labels = draw(st.lists(st.sampled_from([*targets, ignore_index]), min_size=B * T, max_size=B * T))
    scored_at = draw(st.integers(0, B * T - 1))
    labels[scored_at] = draw(st.sampled_from(targets))
    return torch.tensor(labels).reshape(B, T), ignore_index


def _with_banned(draw: st.DrawFn, student: Tensor, teacher: Tensor, banned: str) -> tuple[Tensor, Tensor]:
    """Return the logits of student and teacher with banned tokens. See `kd_cases` for the values of `banned`."""
    if banned == "none":
        return student, teacher
    B, T, V = student.shape
    student_mask = draw(banned_tokens((B, T, V)))
    teacher_mask = draw(banned_tokens((B, T, V))) if banned == "each" else student_mask
    return (
        student.masked_fill(student_mask, NO_TOKEN) if banned in ("student", "same", "each") else student,
        teacher.masked_fill(teacher_mask, NO_TOKEN) if banned in ("teacher", "same", "each") else teacher,
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
    """Draw a case with B <= 3, T <= 4, V <= 4, at least one scored token, and repeated tokens."""
    B, T, V = draw(st.tuples(st.integers(1, 3), st.integers(2, 4), st.integers(2, 4)))
    K = draw(st.integers(2, 4))
    tokens = draw(st.lists(st.integers(0, K - 1), min_size=B * T, max_size=B * T))
    labels = draw(st.lists(st.sampled_from([*range(V), IGNORED]), min_size=B * T, max_size=B * T))
    scored_at = draw(st.integers(0, B - 1)) * T + draw(st.integers(1, T - 1))
    labels[scored_at] = draw(st.integers(0, V - 1))
    tables = draw(tensors((K, V), logits, dtype)), draw(tensors((K, V), logits, dtype))
    settings = draw(temperatures), draw(ce_weights), draw(kd_weights)
    return StepCase(torch.tensor(tokens).reshape(B, T), torch.tensor(labels).reshape(B, T), *tables, *settings)


# The formulas that failure messages quote.
LOSS = "sum over scored rows of ce_weight·CE + kd_weight·τ²·KL(teacher ‖ student)"
GRADIENT = "ce_weight·(softmax(s) - onehot) + kd_weight·τ·(softmax(s/τ) - softmax(t/τ))"
ANYWHERE = st.sampled_from(["none", "teacher", "student", "same", "each"])
IGNORE_INDICES = st.sampled_from([IGNORED, -1, 0, 1, 7])
NAMED = st.sampled_from([(name, beta) for name, oracle in oracles.DIVERGENCES.items() for beta in oracle.betas])
"""Name of a divergence, and a value of beta."""
TERMS_APART = st.sampled_from([(1.0, 0.0), (0.0, 1.0), (0.3, 0.7)])
"""ce_weight and kd_weight: one term alone, or both."""


def assert_loss_is_the_oracles(subject: Any, case: KdCase, device: str | None = None, unit: float = 0.0) -> None:
    """Assert that count and sum equal the oracle's; `unit` is the unit roundoff, by default the subject's."""
    loss, expected = case.loss(subject, device), case.oracle_nats()
    allowed = case.allowed_nats(unit or unit_of(subject))
    assert int(loss.count) == int(case.scored.sum()), f"count is {int(loss.count)}; expected {int(case.scored.sum())}"
    assert not math.isnan(float(loss.sum)), f"sum is NaN; expected {expected:.9g} nats ({LOSS})"
    oracles.assert_close("sum in nats", float(loss.sum), expected, allowed, LOSS)


def assert_gradient_is_the_oracles(subject: Any, case: KdCase, device: str | None = None, unit: float = 0.0) -> None:
    """Assert that the gradient equals the oracle's; `unit` is the unit roundoff, by default the subject's."""
    allowed = case.allowed_gradient(unit or unit_of(subject))
    assert_same_gradient("the gradient", case.gradient(subject, device), case.oracle_gradient(), allowed)


def assert_is_the_oracles(subject: Any, case: KdCase, device: str | None = None, unit: float = 0.0) -> None:
    """Assert that count, sum and gradient equal the oracle's."""
    assert_loss_is_the_oracles(subject, case, device, unit)
    assert_gradient_is_the_oracles(subject, case, device, unit)


def assert_autograd_is_the_oracles(subject: Any, case: KdCase, device: str | None = None, unit: float = 0.0) -> None:
    """Assert that autograd of the subject's own loss equals the oracle's gradient, and is finite."""
    gradient, allowed = case.autograd(subject, device), case.allowed_gradient(unit or unit_of(subject))
    assert bool(gradient.isfinite().all()), f"autograd is {gradient.tolist()}; expected finite numbers"
    # The tolerance is doubled: autograd may round more often than the closed form.
    assert_same_gradient("autograd", gradient, case.oracle_gradient(), 2 * allowed)


def assert_same_gradient(name: str, seen: Tensor, expected: Tensor, allowed: float, formula: str = GRADIENT) -> None:
    """Assert that no element differs by more than `allowed`; `formula` describes the expected value in the message."""
    difference = (seen.double() - expected.double()).abs()
    assert bool((difference <= allowed).all()), (
        f"{name} is {seen.tolist()}; expected {expected.tolist()} ({formula}); difference "
        f"{difference.max().item():.3g}, allowed {allowed:.3g}"
    )
