"""The parsed definition of one equation: its formulas, domain, results and what it is compared with."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pv.equations.accuracy import Accuracy
from pv.equations.call import Call
from pv.equations.checks import Checks
from pv.equations.domain import Variable
from pv.equations.language import Formula
from pv.equations.values import Axes, Callee


@dataclass(frozen=True, slots=True)
class Derivative:
    """The equation that is differentiated, and the variable of it by which."""

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
