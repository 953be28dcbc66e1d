"""The accuracy that an equation claims for its code: `dtypes`, `precision` and `tolerance`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNITS = {"float64": 2.0**-52, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""The unit roundoff of each dtype: the largest relative error of one rounding."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A fixed tolerance, relative * |value| + absolute, instead of the measured one. why: the reason for it."""

    relative: float
    absolute: float
    why: str


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The claimed accuracy.

    dtypes: the dtypes of the code's arrays, one per example in turn. computes_in: the dtype of the code's operations;
    "" is that of its arrays.
    """

    dtypes: tuple[str, ...] = ("float32",)
    computes_in: str = "float32"
    tolerance: Tolerance | None = None

    def unit(self, dtype: str) -> float:
        """Return the unit roundoff of the code's operations on arrays of `dtype`."""
        return UNITS[self.computes_in or dtype]


def accuracy(keys: Mapping[str, Any], inherited: Mapping[str, Any]) -> Accuracy:
    """Return the accuracy that the keys of an equation claim; a derivative inherits `dtypes` and `precision`."""
    claimed = {key: inherited[key] for key in ("dtypes", "precision") if key in inherited} | dict(keys)
    tolerance = claimed.get("tolerance")
    return Accuracy(
        tuple(claimed.get("dtypes", ("float32",))),
        "float32" if claimed.get("precision", "float32") == "float32" else "",
        Tolerance(float(tolerance.get("relative", 0)), float(tolerance.get("absolute", 0)), tolerance["why"])
        if tolerance is not None
        else None,
    )
