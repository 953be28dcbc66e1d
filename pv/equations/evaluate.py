"""Evaluate equations on examples: their values, conditions and invariants.

Evaluation is in float64, exactly or with every operation disturbed by one rounding; the spread of the disturbed runs
gives the allowed error of code (`pv.equations.tolerance`).
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pv.equations.arrays import Tensor, torch
from pv.equations.call import Call
from pv.equations.domain import Kind, Variable, axis_bounds
from pv.equations.examples import Example
from pv.equations.interpret import Axes, Callee, Interpreter, Value, variable_value
from pv.equations.language import Formula, Line
from pv.equations.parse import Accuracy, Checks, Definition, Derivative
from pv.equations.tensors import Tensors
from pv.equations.tolerance import FLOAT64, SLACK

RUNS = 8
"""Number of disturbed evaluations, with different signs of the roundings."""

_WHOLE_KINDS = (Kind.INT, Kind.INDEX, Kind.MASK, Kind.SIZE)
_WHOLE_FUNCTIONS = frozenset(
    {"abs", "sign", "maximum", "minimum", "clip", "where", "sum", "prod", "max", "min", "count", "any", "all"}
)


@dataclass(frozen=True, slots=True)
class Equation:
    """A formula over a domain.

    Attributes:
        results: The axes of each of its values, in the order of the code.
    """

    name: str
    formula: Formula
    variables: Mapping[str, Variable]
    results: tuple[Axes, ...]
    callees: Mapping[str, Callee]

    @property
    def is_whole(self) -> bool:
        """Return whether it computes whole numbers from whole numbers, without a rounding, and calls no equation."""
        nodes = [node for line in self.formula.lines for node in ast.walk(line.value)]
        whole = all(variable.kind in _WHOLE_KINDS for variable in self.variables.values())
        return whole and all(map(_is_whole, nodes))

    def at(
        self, example: Example, *, differentiable: str = "", unit: float = 0.0
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """Evaluate the equation on an example.

        Args:
            example: The values of the variables and the sizes of the axes.
            differentiable: The name of a variable to differentiate by; "" for none.
            unit: 0 for one exact run; else every operation is off by this relative error, in `RUNS` runs.

        Returns:
            The values, each [runs, *axes], and the leaf tensor of the variable `differentiable`, None without one.
        """
        environment = environment_of(self.variables, example)
        leaf = None
        if differentiable:
            # A clone: the gradient must not reach the tensor of the example.
            leaf = environment[differentiable].content.clone().requires_grad_()
            environment[differentiable] = variable_value(self.variables[differentiable], leaf)
        tensors = Tensors(example.sizes, unit=unit, runs=RUNS if unit else 1)
        sizes = {**{axis: high for axis, (_, high) in axis_bounds(self.variables).items()}, **example.sizes}
        values = Interpreter(self.formula, environment, sizes, tensors, self.callees).values()
        return tuple(_ordered(tensors, v, axes, example) for v, axes in zip(values, self.results, strict=True)), leaf

    def exact(self, example: Example) -> tuple[Tensor, ...]:
        """Return the values in float64, each [*axes]."""
        return tuple(result[0] for result in self.at(example)[0])


def environment_of(variables: Mapping[str, Variable], example: Example) -> dict[str, Value[Tensor]]:
    """Return the values of the variables on an example, each [1, *axes]."""
    return {name: variable_value(variables[name], array.unsqueeze(0)) for name, array in example.arrays.items()}


def _is_whole(node: ast.AST) -> bool:
    """Return whether the operation of a node keeps whole numbers whole; its operands are checked separately."""
    match node:
        case ast.Constant(value=number):
            return isinstance(number, int)
        case ast.Name(id=name):
            return name not in ("pi", "inf")
        case ast.Call(func=ast.Name(id=name)):
            return name in _WHOLE_FUNCTIONS
        case _:
            return not isinstance(node, ast.Call | ast.Div)


def _ordered(tensors: Tensors, value: Value[Tensor], axes: Axes, example: Example) -> Tensor:
    content = tensors.number(tensors.align(value, axes))
    return content.expand(content.shape[0], *(example.sizes[axis] for axis in axes))


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
            # The exact check first: evaluating both sides with rounding costs eight runs.
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
    # A strict inequality of equal sides is false by definition, however small the rounding.
    if isinstance(last.ops[0], ast.Lt | ast.Gt) and not apart.any():
        return nowhere
    return apart <= SLACK * (spread + FLOAT64 * (left.abs() + right.abs())[0])
