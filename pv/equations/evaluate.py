"""Evaluation of an equation on an example in float64, exactly or with every operation disturbed by one rounding."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from pv.equations.arrays import Tensor
from pv.equations.domain import Kind, Variable, axis_bounds
from pv.equations.draw import Example
from pv.equations.interpret import Interpreter
from pv.equations.language import Formula
from pv.equations.tensors import Tensors
from pv.equations.values import Axes, Callee, Value, variable_value

RUNS = 8
"""Number of disturbed evaluations, with different signs of the roundings."""

_WHOLE_KINDS = (Kind.INT, Kind.INDEX, Kind.MASK, Kind.SIZE)
_WHOLE_FUNCTIONS = frozenset(
    {"abs", "sign", "maximum", "minimum", "clip", "where", "sum", "prod", "max", "min", "count", "any", "all"}
)


@dataclass(frozen=True, slots=True)
class Equation:
    """A formula over a domain. results: the axes of each of its values, in the order of the code."""

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
        """Return the values on an example, each [runs, *axes], and the leaf tensor of the variable `differentiable`.

        unit: 0 for one exact run; else every operation is off by this relative error, in `RUNS` runs.
        """
        environment = environment_of(self.variables, example)
        leaf = None
        if differentiable:
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
    """Return whether a node keeps whole numbers whole; what its parts are is asked of them."""
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
