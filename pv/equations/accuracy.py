"""What an equation claims of its code's numbers: the types that it is given, how it computes, how close that comes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNITS = {"float64": 2.0**-52, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""How far one rounding to a type moves a number, relative to it."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What stands in the place of the measured allowance: relative * |value| + absolute, and the reason."""

    relative: float
    absolute: float
    why: str


@dataclass(frozen=True, slots=True)
class Accuracy:
    """dtypes: what arrays are given in, an example each in turn. computes_in: a type, or "" for that of the arrays."""

    dtypes: tuple[str, ...] = ("float32",)
    computes_in: str = "float32"
    tolerance: Tolerance | None = None

    def unit(self, dtype: str) -> float:
        """The rounding of the code's operations where its arrays are of `dtype`."""
        return UNITS[self.computes_in or dtype]


def accuracy(keys: Mapping[str, Any], inherited: Mapping[str, Any]) -> Accuracy:
    """The accuracy that the keys of an equation claim; a derivative has the types of what it is the derivative of."""
    said = {key: inherited[key] for key in ("dtypes", "precision") if key in inherited} | dict(keys)
    tolerance = said.get("tolerance")
    return Accuracy(
        tuple(said.get("dtypes", ("float32",))),
        "float32" if said.get("precision", "float32") == "float32" else "",
        Tolerance(float(tolerance.get("relative", 0)), float(tolerance.get("absolute", 0)), tolerance["why"])
        if tolerance is not None
        else None,
    )
