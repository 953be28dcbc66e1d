"""Find the invariants of an equation that an example violates by more than rounding explains."""

import ast
from collections.abc import Iterator

from pv.equations.arrays import Tensor, torch
from pv.equations.evaluate import values_of
from pv.equations.examples import Example
from pv.equations.language import Formula, Line
from pv.equations.parse import Definition
from pv.equations.tolerance import FLOAT64, SLACK


def broken_invariants(equation: Definition, example: Example) -> Iterator[str]:
    """Yield a message for every invariant that an example violates by more than rounding explains."""
    for invariant in equation.invariants:
        (holds,) = values_of(equation, invariant, example)
        # Rounding is measured only if the exact check fails, since it takes `RUNS` more evaluations of both sides.
        if not holds.all():
            holds = holds | _equal_up_to_rounding(equation, invariant, example)
        if not holds.all():
            sides = _describe_sides(equation, invariant, example, holds)
            yield f"the invariant `{invariant.text}` of {equation.name} does not hold here{sides}"


def _both_sides(invariant: Formula) -> Formula | None:
    """Return both sides of a comparison `a < b` as one formula with two values; None for any other invariant."""
    last = invariant.lines[-1].value
    if not isinstance(last, ast.Compare) or len(last.ops) != 1:
        return None
    sides = ast.Tuple(elts=[last.left, last.comparators[0]], ctx=ast.Load())
    return Formula(invariant.text, (*invariant.lines[:-1], Line("", sides)))


def _describe_sides(equation: Definition, invariant: Formula, example: Example, holds: Tensor) -> str:
    """Describe both sides of a comparison at the first element where it is false; "" for any other invariant."""
    if (both := _both_sides(invariant)) is None:
        return ""
    index = int(torch.where(holds, 0.0, 1.0).argmax())
    left, right = (float(side.expand(holds.shape).flatten()[index]) for side in values_of(equation, both, example))
    return f": its sides are {left:.9g} and {right:.9g}"


def _equal_up_to_rounding(equation: Definition, invariant: Formula, example: Example) -> Tensor:
    """Return a mask: True where the two sides of a comparison differ by no more than rounding in float64 explains.

    The mask is False if the invariant must hold exactly: `!=`, and `<` or `>` if the two sides are equal in every
    element. It is also False if the invariant is not a comparison of two sides.
    """
    last, nowhere = invariant.lines[-1].value, torch.tensor([False])
    both = _both_sides(invariant)
    if both is None or not isinstance(last, ast.Compare) or isinstance(last.ops[0], ast.NotEq):
        return nowhere
    left, right = values_of(equation, both, example)
    # The spread of the perturbed runs measures the rounding error of each side, as in `pv.equations.tolerance`.
    noisy_left, noisy_right = values_of(equation, both, example, FLOAT64)
    spread = (noisy_left - left).abs().amax(0) + (noisy_right - right).abs().amax(0)
    distance = (left - right).abs()[0]
    # A strict inequality of equal sides is false by definition, so rounding does not explain the violation.
    if isinstance(last.ops[0], ast.Lt | ast.Gt) and not distance.any():
        return nowhere
    return distance <= SLACK * (spread + FLOAT64 * (left.abs() + right.abs())[0])
