"""The arguments of the loss in each step of a run.

Temperature and weights may change during the run; their values are pure functions of the step. Steps count from 1, and
`total` is the number of steps of the run. With p = (step - 1) / (total - 1):

    constant   start
    linear     start + (end - start) * p
    cosine     start + (end - start) * (1 - cos(pi * p)) / 2

So the first step has exactly `start` and the last step exactly `end`; a run of one step has `start`. Steps beyond
`total` have the value of the last step. During a warm-up of N steps, the value rises linearly from 0 to `start`: step
k <= N has start * k / N. Then p is (step - N) / (total - N). If a run has no step after its warm-up, `end` is never
reached.

    >>> temperature = Annealed(4.0, 1.0, "linear")
    >>> [temperature.at(step, 4) for step in (1, 2, 3, 4, 5)]
    [4.0, 3.0, 2.0, 1.0, 1.0]
    >>> weight = Annealed(0.8, warmup=2)
    >>> [weight.at(step, 4) for step in (1, 2, 3, 4)]
    [0.4, 0.8, 0.8, 0.8]

Sources: Loshchilov and Hutter 2017, arXiv:1608.03983, equation 5, for the cosine; google/maxtext, `compute_schedule`,
for the three shapes. MaxText differs: it counts steps from 0 and divides by `max_steps`, so its last step does not
reach `end`; it has no warm-up; and it ignores an `end` with the shape `constant`, which this module refuses.

Nothing here reads a clock, a file or a tensor.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction

from reference_trainer.distillation.objective import Weights
from reference_trainer.errors import SettingError

SHAPES = ("constant", "linear", "cosine")
WEIGHTS = (0.0, 1e30)
"""Smallest and largest loss weight; float32 can represent both."""


@dataclass(frozen=True, slots=True)
class Annealed:
    """A value that changes from `start` to `end` by a shape of `SHAPES`, after `warmup` steps in which it rises from 0.

    A `start` of 0 with another `end` is allowed, such as a loss weight that rises from 0. To decide before a run
    whether the loss term of a weight is needed, read `is_zero`, not the value of the first step.

    Attributes:
        start: The value of step `warmup`; without a warm-up, the value of the first step.
        end: The value of the last step; None for the shape `constant`, required for other shapes.
        shape: A name in `SHAPES`.
        warmup: The number of warm-up steps.
        name: The name of the setting, for error messages.
        bounds: The smallest and largest allowed value; a warm-up needs a smallest value of at most 0.

    Raises:
        SettingError: A number is not finite or out of bounds, the shape is unknown, the shape needs an end or
            excludes it, or the warm-up is not an integer >= 0.
    """

    start: float
    end: float | None = None
    shape: str = "constant"
    warmup: int = 0
    _: KW_ONLY
    name: str = "value"
    bounds: tuple[float, float] = WEIGHTS

    def __post_init__(self) -> None:
        self._check_shape()
        self._check_number("start", self.start)
        if self.end is not None:
            self._check_number("end", self.end)
        if type(self.warmup) is not int or self.warmup < 0:
            raise SettingError(
                f"invalid value {self.warmup!r} for the warm-up of '{self.name}': expected an integer >= 0"
            )
        if self.warmup and self.bounds[0] > 0:
            raise SettingError(
                f"invalid value {self.warmup} for the warm-up of '{self.name}': expected 0, because a warm-up rises "
                f"from 0 and the smallest value is {self.bounds[0]:g}"
            )

    def _check_shape(self) -> None:
        if self.shape not in SHAPES:
            raise SettingError(f"unknown shape {self.shape!r} for '{self.name}' (choose from {', '.join(SHAPES)})")
        if self.shape == "constant" and self.end is not None:
            raise SettingError(
                f"conflicting settings: '{self.name}' has the end {self.end!r} and the shape 'constant'; omit the end, "
                f"or choose the shape linear or cosine"
            )
        if self.shape != "constant" and self.end is None:
            raise SettingError(f"missing end of '{self.name}': the shape '{self.shape}' needs one")

    def _check_number(self, place: str, value: float) -> None:
        low, high = self.bounds
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and low <= value <= high):
            raise SettingError(
                f"invalid value {value!r} for the {place} of '{self.name}': expected a number from {low:g} to {high:g}"
            )

    @property
    def is_zero(self) -> bool:
        """Return whether the value is 0 in every step of every run."""
        return not (self.start or self.end)

    def at(self, step: int, total: int) -> float:
        """Return the value of a step, from 1, in a run of `total` steps; see the module's docstring.

        The value is a monotonic function of the step during the warm-up, from 0 to `start`, and after the warm-up, from
        `start` to `end`. Raise `SettingError` unless `step` and `total` are positive.
        """
        if step < 1 or total < 1:
            raise SettingError(f"step is {step!r} of {total!r}; expected positive integers, steps count from 1")
        step, first = min(step, total), max(1, self.warmup)  # `first` is the step with the value `start`
        if step < first:
            return self.start * step / first
        if self.end is None:
            return float(self.start)
        progress = Fraction(step - first, max(1, total - first))  # a run of one step has progress 0
        return _between(self.start, self.end, progress if self.shape == "linear" else _cosine(progress))


def _cosine(progress: Fraction) -> Fraction:
    """Return (1 - cos(pi * progress)) / 2; exactly 0 at progress 0 and exactly 1 at 1, where `math.cos` is exact."""
    return Fraction((1 - math.cos(math.pi * progress)) / 2)


def _between(start: float, end: float, share: Fraction) -> float:
    """Return start + (end - start) * share, rounded once."""
    # Fractions, because in floats 0.2 + (0.9 - 0.2) is not 0.9, and a value shortly before `end` could exceed `end`.
    return float(Fraction(start) + (Fraction(end) - Fraction(start)) * share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Arguments of the loss. A float is constant; an `Annealed` changes during the run.

    `reference_trainer.distillation.objective.Weights` documents the arguments.
    """

    temperature: float | Annealed
    ce_weight: float | Annealed
    kd_weight: float | Annealed
    divergence: str = "forward_kl"
    beta: float = 0.5
    feature_weight: float | Annealed = 0.0

    def weights(self, step: int, total: int) -> Weights:
        """Return the arguments of the loss in step `step`, from 1, of `total`."""

        def at_step(value: float | Annealed) -> float:
            return value.at(step, total) if isinstance(value, Annealed) else value

        return Weights(
            temperature=at_step(self.temperature),
            ce_weight=at_step(self.ce_weight),
            kd_weight=at_step(self.kd_weight),
            divergence=self.divergence,
            beta=self.beta,
            feature_weight=at_step(self.feature_weight),
        )

    def needs_teacher(self, first: int, last: int, total: int) -> bool:
        """Return whether a term that needs the teacher has a weight above 0 in any step from `first` to `last`.

        Checking these two steps is sufficient: a weight with `start` > 0 is 0 only at its end, and a weight with
        `start` = 0 never falls.
        """
        both = (self.weights(first, total), self.weights(last, total))
        return any(weights.kd_weight or weights.feature_weight for weights in both)
