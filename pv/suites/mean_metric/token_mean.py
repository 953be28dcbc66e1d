"""The implementation that the mean-metric suite tests by default: the mean over all tokens of batches, in float64."""

import math

from torch import Tensor

Value = float | Tensor


class TokenMean:
    """The running mean over the tokens of all batches.

    Attributes:
        total: The sum over the tokens.
        weight: The number of tokens.
    """

    total: float
    weight: float

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.total, self.weight = 0.0, 0

    def update(self, value: Value, weight: int = 1) -> None:
        """Add a batch by its mean and its number of tokens; the mean of 0 tokens may be NaN."""
        # Leave out batches without tokens: their mean may be NaN, and NaN * 0 is NaN.
        if has_weight(weight):
            self.total, self.weight = add(self.total, to_float(value) * weight), add(self.weight, weight)

    def compute(self) -> float:
        """Return the mean; NaN if there are no tokens."""
        return ratio(self.total, self.weight)

    def merge(self, other: "TokenMean") -> None:
        self.total, self.weight = add(self.total, other.total), add(self.weight, other.weight)

    def state_dict(self) -> dict[str, float]:
        return {"total": self.total, "weight": self.weight}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.total, self.weight = state["total"], state["weight"]


def has_weight(weight: int) -> bool:
    return weight > 0


def to_float(value: Value) -> float:
    return float(value)


def add(total: float, value: float) -> float:
    return total + value


def ratio(total: float, weight: float) -> float:
    return total / weight if weight else empty_mean()


def empty_mean() -> float:
    return math.nan
