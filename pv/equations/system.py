"""The equations of a contract, ready to be evaluated on examples: claims with their conditions and invariants."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pv.equations.accuracy import Accuracy
from pv.equations.arrays import Tensor, torch
from pv.equations.call import Call
from pv.equations.checks import Checks
from pv.equations.definition import Definition, Derivative
from pv.equations.draw import Example
from pv.equations.evaluate import RUNS, Equation, environment_of
from pv.equations.interpret import Interpreter
from pv.equations.language import Formula, Line
from pv.equations.limits import FLOAT64, SLACK
from pv.equations.tensors import Tensors


@dataclass(frozen=True, slots=True)
class Claim:
    """An equation and what it is compared with: code, the derivative of another equation, invariants."""

    equation: Equation
    call: Call | None
    returns: ast.expr | None
    derivative: Derivative | None
    requires: Formula | None
    invariants: tuple[Formula, ...]
    accuracy: Accuracy
    checks: Checks


class System:
    """All executable equations of one contract, which may call each other."""

    def __init__(self, definitions: Mapping[str, Definition]) -> None:
        callees = {name: definition.callee for name, definition in definitions.items()}
        self.claims = {
            name: Claim(
                Equation(name, definition.formula, definition.variables, definition.results, callees),
                definition.call,
                definition.returns,
                definition.derivative,
                definition.requires,
                definition.invariants,
                definition.accuracy,
                definition.checks,
            )
            for name, definition in definitions.items()
        }

    def admits(self, claim: Claim, example: Example) -> bool:
        """Return whether an example satisfies `requires`."""
        return claim.requires is None or bool(_values(claim, claim.requires, example)[0].all())

    def broken_invariants(self, claim: Claim, example: Example) -> Iterator[str]:
        """Yield a message for every invariant that an example violates by more than rounding explains."""
        for invariant in claim.invariants:
            (holds,) = _values(claim, invariant, example)
            if not holds.all() and not (holds := holds | _nearly_equal(claim, invariant, example)).all():
                sides = _sides(claim, invariant, example, holds)
                yield f"the invariant `{invariant.text}` of {claim.equation.name} does not hold here{sides}"


def _values(claim: Claim, formula: Formula, example: Example, unit: float = 0.0) -> list[Tensor]:
    """Return the values of a formula on an example, aligned to each other, each [runs, *axes]."""
    environment = environment_of(claim.equation.variables, example)
    tensors = Tensors(example.sizes, unit=unit, runs=RUNS if unit else 1)
    values = Interpreter(formula, environment, example.sizes, tensors, claim.equation.callees).values()
    axes = tuple(dict.fromkeys(axis for value in values for axis in value.axes))
    return [tensors.align(value, axes) for value in values]


def _both(invariant: Formula) -> Formula | None:
    """Return both sides of a comparison as one formula of two values; None for anything else."""
    last = invariant.lines[-1].value
    if not isinstance(last, ast.Compare) or len(last.ops) != 1:
        return None
    sides = ast.Tuple(elts=[last.left, last.comparators[0]], ctx=ast.Load())
    return Formula(invariant.text, (*invariant.lines[:-1], Line("", sides)))


def _sides(claim: Claim, invariant: Formula, example: Example, holds: Tensor) -> str:
    """Return the sides of a comparison in words, where it first does not hold; empty for anything else."""
    if (both := _both(invariant)) is None:
        return ""
    place = int(torch.where(holds, 0.0, 1.0).argmax())
    left, right = (float(side.expand(holds.shape).flatten()[place]) for side in _values(claim, both, example))
    return f": its sides are {left:.9g} and {right:.9g}"


def _nearly_equal(claim: Claim, invariant: Formula, example: Example) -> Tensor:
    """Return where the two sides of a comparison differ by no more than rounding in float64 explains.

    `!=` must hold exactly, and so must `<` and `>` where both sides are equal everywhere.
    """
    last, nowhere = invariant.lines[-1].value, torch.tensor([False])
    both = _both(invariant)
    if both is None or not isinstance(last, ast.Compare) or isinstance(last.ops[0], ast.NotEq):
        return nowhere
    left, right = _values(claim, both, example)
    noisy_left, noisy_right = _values(claim, both, example, FLOAT64)
    spread = (noisy_left - left).abs().amax(0) + (noisy_right - right).abs().amax(0)
    apart = (left - right).abs()[0]
    if isinstance(last.ops[0], ast.Lt | ast.Gt) and not apart.any():
        return nowhere
    return apart <= SLACK * (spread + FLOAT64 * (left.abs() + right.abs())[0])
