"""The equations of a contract, ready to be evaluated on examples."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pv.equations.accuracy import Accuracy
from pv.equations.call import Call
from pv.equations.domain import axis_bounds
from pv.equations.draw import Example
from pv.equations.equation import FLOAT64, SLACK, Equation
from pv.equations.language import Formula, Line
from pv.equations.parsed import Derivative, Parsed
from pv.equations.tensors import Tensors
from pv.equations.values import variable_value
from pv.equations.walk import Walk


@dataclass(frozen=True, slots=True)
class Claim:
    """An equation and what it is held against."""

    equation: Equation
    call: Call | None
    returns: ast.expr | None
    derivative: Derivative | None
    requires: Formula | None
    invariants: tuple[Formula, ...]
    accuracy: Accuracy


class System:
    """All executable equations of one contract, which may call each other."""

    def __init__(self, parsed: Mapping[str, Parsed]) -> None:
        callees = {name: each.callee for name, each in parsed.items()}
        self.claims = {
            name: Claim(
                Equation(name, each.formula, each.variables, each.results, callees),
                each.call,
                each.returns,
                each.derivative,
                each.requires,
                each.invariants,
                each.accuracy,
            )
            for name, each in parsed.items()
        }

    def admits(self, claim: Claim, example: Example) -> bool:
        """Whether an example fulfils `requires`."""
        return claim.requires is None or bool(self._condition(claim, claim.requires, example).all())

    def broken_invariants(self, claim: Claim, example: Example) -> Iterator[str]:
        """The invariants that do not hold on an example, beyond rounding."""
        for invariant in claim.invariants:
            holds = self._condition(claim, invariant, example)
            if not holds.all() and not (holds | self._nearly(claim, invariant, example)).all():
                yield invariant.text

    def completed(self, claim: Claim, sizes: Mapping[str, int]) -> dict[str, int]:
        """`sizes`, and the least size for every axis that no array shows."""
        return {**{axis: low for axis, (low, _) in axis_bounds(claim.equation.variables).items()}, **sizes}

    def _condition(self, claim: Claim, formula: Formula, example: Example) -> Tensor:
        (value,) = self._walk(claim, formula, example, 0.0)
        return value

    def _walk(self, claim: Claim, formula: Formula, example: Example, unit: float) -> list[Tensor]:
        environment = {
            name: variable_value(claim.equation.variables[name], array.unsqueeze(0))
            for name, array in example.arrays.items()
        }
        tensors = Tensors(example.sizes, unit=unit, runs=8 if unit else 1)
        walk = Walk(formula, environment, dict(example.sizes), tensors, claim.equation.callees)
        axes = None
        contents = []
        for value in walk.values():
            axes = value.axes if axes is None else tuple(dict.fromkeys((*axes, *value.axes)))
            contents.append(value)
        return [tensors.align(value, axes or ()) for value in contents]

    def _nearly(self, claim: Claim, invariant: Formula, example: Example) -> Tensor:
        """A comparison of two sides that are no further apart than rounding in float64 explains."""
        last = invariant.lines[-1].value
        if not isinstance(last, ast.Compare) or len(last.ops) != 1:
            return torch.zeros(1, dtype=torch.bool)
        sides = ast.Tuple(elts=[last.left, last.comparators[0]], ctx=ast.Load())
        both = Formula(invariant.text, (*invariant.lines[:-1], Line("", sides)))
        left, right = self._walk(claim, both, example, 0.0)
        noisy_left, noisy_right = self._walk(claim, both, example, FLOAT64)
        spread = (noisy_left - left).abs().amax(0) + (noisy_right - right).abs().amax(0)
        apart = (left - right).abs()[0]
        if isinstance(last.ops[0], ast.NotEq):
            return torch.zeros(1, dtype=torch.bool)
        if isinstance(last.ops[0], ast.Lt | ast.Gt) and not apart.any():
            return torch.zeros(1, dtype=torch.bool)
        return apart <= SLACK * (spread + FLOAT64 * (left.abs() + right.abs())[0])
