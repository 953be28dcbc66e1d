"""The definition of one equation: its formulas, domain and results, what it is compared with, and how accurately."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pv.equations.call import Call
from pv.equations.domain import Variable
from pv.equations.interpret import Axes, Callee
from pv.equations.language import Formula

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
    """The claimed accuracy."""

    # The dtypes of the code's arrays, one per example in turn.
    dtypes: tuple[str, ...] = ("float32",)
    # The dtype of the code's operations; "" is that of its arrays.
    computes_in: str = "float32"
    tolerance: Tolerance | None = None

    def unit(self, dtype: str) -> float:
        """Return the unit roundoff of the code's operations on arrays of `dtype`."""
        return UNITS[self.computes_in or dtype]


def accuracy(keys: Mapping[str, Any], inherited: Mapping[str, Any]) -> Accuracy:
    """Return the accuracy that the keys of an equation claim; a derivative inherits `dtypes` and `precision`."""
    # Own keys last, so that they override those that are inherited.
    claimed = {key: inherited[key] for key in ("dtypes", "precision") if key in inherited} | dict(keys)
    tolerance = claimed.get("tolerance")
    return Accuracy(
        tuple(claimed.get("dtypes", ("float32",))),
        # `precision: float32` means that operations are computed in float32 even on narrower arrays.
        "float32" if claimed.get("precision", "float32") == "float32" else "",
        Tolerance(float(tolerance.get("relative", 0)), float(tolerance.get("absolute", 0)), tolerance["why"])
        if tolerance is not None
        else None,
    )


class Check(StrEnum):
    """A check of the code besides its values, as it is written in a contract."""

    INPUTS_UNCHANGED = "inputs_unchanged"
    """The code does not write into its arguments."""
    REPEATABLE = "repeatable"
    """A second call with equal arguments returns the same bits."""
    NONCONTIGUOUS_INPUTS = "noncontiguous_inputs"
    """The code also agrees with the equation if its arrays are not contiguous."""
    EXPANDED_INPUTS = "expanded_inputs"
    """The code also agrees with the equation if its arrays are expanded, so that slices share memory."""


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of one equation. result_dtype: "" for any, `input` for the dtype of the arrays."""

    names: frozenset[Check] = frozenset()
    result_dtype: str = ""

    def dtype(self, of_arrays: str) -> str:
        """Return the dtype that the result must have, for arrays of the given dtype; "" for any."""
        return of_arrays if self.result_dtype == "input" else self.result_dtype


def checks(keys: Mapping[str, Any]) -> Checks:
    """Return the checks that the keys of an equation claim."""
    return Checks(frozenset(map(Check, keys.get("checks", ()))), str(keys.get("result_dtype", "")))


@dataclass(frozen=True, slots=True)
class Derivative:
    """What a derivative is the derivative of: an equation, by one of its variables."""

    equation: str
    variable: str


@dataclass(frozen=True, slots=True)
class Definition:
    """One executable equation of a contract. results: the axes of each of its values, in the order of the code."""

    name: str
    formula: Formula
    variables: Mapping[str, Variable]
    results: tuple[Axes, ...]
    requires: Formula | None
    invariants: tuple[Formula, ...]
    call: Call | None
    returns: ast.expr | None
    derivative: Derivative | None
    accuracy: Accuracy
    checks: Checks

    @property
    def callee(self) -> Callee:
        return Callee(self.formula, self.variables)

    @property
    def formulas(self) -> Iterator[Formula]:
        """Return the expression, the invariants and the condition of the domain."""
        yield from (self.formula, *self.invariants)
        if self.requires is not None:
            yield self.requires
