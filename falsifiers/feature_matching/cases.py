"""Cases for attacks on feature matching, and their float64 oracle in plain Python.

With n(x) = max(|x|, 1e-4) and x^ = x / n(x), the distance of two vectors h and g of width W is |h^ - g^|^2 / 2 for
"cosine", which is 1 - cos(h, g) for norms of at least 1e-4, and |h - g|^2 / W for "l2".

The subject has `feature_loss`, as `distillation.features` does. Shape letters: B batch, T position, W width.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support.cases import HALVES, tensors
from falsifiers.support.oracles import UNIT_ROUNDOFF

SMALLEST_NORM = 1e-4
DISTANCES = st.sampled_from(["cosine", "l2"])
STATES = HALVES | st.floats(-20, 20)


@dataclass(frozen=True, slots=True, eq=False)
class FeatureCase:
    """The arguments of one call: states [B, T, W] of each layer, the mask bool [B, T], pairs of layers, a distance."""

    student: list[Tensor]
    teacher: list[Tensor]
    scored: Tensor
    layers: list[tuple[int, int]]
    distance: str

    def but(self, **changes: Any) -> Self:
        return replace(self, **changes)

    def mapped(self, models: str, change: Callable[[Tensor], Tensor]) -> Self:
        """Return the case with changed states of the "student", the "teacher" or "both"."""
        names = ("student", "teacher") if models == "both" else (models,)
        return self.but(**{name: [change(x) for x in getattr(self, name)] for name in names})

    def to(self, dtype: torch.dtype) -> Self:
        return self.mapped("both", lambda x: x.to(dtype))

    def loss(self, subject: Any, device: str = "cpu") -> Any:
        case, options = self.mapped("both", lambda x: x.to(device)), {"layers": self.layers, "distance": self.distance}
        return subject.feature_loss(case.student, case.teacher, self.scored.to(device), **options)

    def gradients(self, subject: Any, device: str = "cpu") -> list[Tensor]:
        """Return the derivative of the sum by the states of each layer of the student, on CPU; the teacher has none."""
        leaves, frozen = (
            [x.to(device).clone().requires_grad_() for x in states] for states in (self.student, self.teacher)
        )
        loss = self.but(student=leaves, teacher=frozen).loss(subject, device)
        try:
            loss.sum.backward()
        except RuntimeError as error:
            raise AssertionError(f"the sum {loss.sum!r} is not differentiable: {error}") from error
        assert all(x.grad is None for x in frozen), "the states of the teacher have a gradient; expected none"
        return [torch.zeros_like(x).cpu() if x.grad is None else x.grad.cpu() for x in leaves]

    def rows(self) -> Iterator[tuple[int, tuple[int, int], list[float], list[float]]]:
        """Yield for each pair and scored position: the student's layer, (b, t), and both vectors as Python numbers."""
        for i, j in self.layers:
            for b, t in self.scored.nonzero().tolist():
                yield i % len(self.student), (b, t), self.student[i][b, t].tolist(), self.teacher[j][b, t].tolist()

    def oracle_sum(self) -> float:
        """Return the oracle's distance, averaged over pairs and summed over scored positions."""
        return math.fsum(distance(self.distance, h, g) for *_, h, g in self.rows()) / len(self.layers)

    def oracle_gradients(self) -> list[Tensor]:
        """Return the oracle's derivative of the sum by the states of each layer of the student, float64."""
        gradients = [torch.zeros(x.shape, dtype=torch.float64) for x in self.student]
        for layer, (b, t), h, g in self.rows():
            row = torch.tensor(derivative(self.distance, h, g), dtype=torch.float64)
            gradients[layer][b, t] += row / len(self.layers)
        return gradients

    def allowed(self, unit: float = UNIT_ROUNDOFF[torch.float64]) -> tuple[float, float]:
        """Return the largest rounding errors of the sum and of an element of a gradient, for this unit roundoff."""
        errors = [allowed(self.distance, h, g, unit) for *_, h, g in self.rows()]
        return math.fsum(x for x, _ in errors), math.fsum(x for _, x in errors)


def _norm(vector: list[float]) -> float:
    return max(math.hypot(*vector), SMALLEST_NORM)


def distance(name: str, h: list[float], g: list[float]) -> float:
    """Return the distance of two vectors."""
    if name == "l2":
        return math.fsum((a - b) ** 2 for a, b in zip(h, g, strict=True)) / len(h)
    return math.fsum((a / _norm(h) - b / _norm(g)) ** 2 for a, b in zip(h, g, strict=True)) / 2


def derivative(name: str, h: list[float], g: list[float]) -> list[float]:
    if name == "l2":
        return [2 * (a - b) / len(h) for a, b in zip(h, g, strict=True)]
    unit = [a / _norm(h) for a in h]
    gap = [a - b / _norm(g) for a, b in zip(unit, g, strict=True)]
    along = math.fsum(a * b for a, b in zip(unit, gap, strict=True)) if math.hypot(*h) >= SMALLEST_NORM else 0.0
    return [(b - a * along) / _norm(h) for a, b in zip(unit, gap, strict=True)]


def allowed(name: str, h: list[float], g: list[float], unit: float) -> tuple[float, float]:
    """Return the largest rounding errors of a distance and of an element of its derivative.

    A squared difference is rounded twice and summed W times: (W + 4)u of its size, at most (|h| + |g|)^2. A norm is
    summed W times and its root taken, so e = (W + 4)u is the error of each element of a direction, 2e the error of
    their gap, and the distance of a gap d is off by 2 W d e + 2 W e^2; its derivative divides by the norm. All are
    doubled, because both sides round.
    """
    e = 2 * (len(h) + 4) * unit
    if name == "l2":
        size = math.hypot(*h) + math.hypot(*g)
        return e * size**2, 2 * e * size
    gap = math.sqrt(2 * distance(name, h, g))
    return 2 * len(h) * e * (gap + e), 8 * e / _norm(h)


@st.composite
def feature_cases(
    draw: st.DrawFn, *, dtype: torch.dtype = torch.float64, states: st.SearchStrategy[float] = STATES
) -> FeatureCase:
    """Draw a case with B <= 2, T <= 3, W <= 4, at most 3 layers of each model and at least one scored position."""
    B, T, W = draw(st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 4)))
    counts = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    student, teacher = ([draw(tensors((B, T, W), states, dtype)) for _ in range(count)] for count in counts)
    pair = st.tuples(*(st.integers(-count, count - 1) for count in counts))
    scored = draw(st.lists(st.booleans(), min_size=B * T, max_size=B * T))
    scored[draw(st.integers(0, B * T - 1))] = True
    mask = torch.tensor(scored).reshape(B, T)
    return FeatureCase(student, teacher, mask, draw(st.lists(pair, min_size=1, max_size=3)), draw(DISTANCES))
