"""Evaluate the expression, the conditions and the invariants of an equation on an example.

Evaluation is in float64: one run without perturbation, or several runs in which every operation has a relative error
of one rounding. The spread of the perturbed runs gives the allowed error of code (`pv.equations.tolerance`).
"""

import ast
from collections.abc import Mapping

from pv.equations.arrays import Tensor
from pv.equations.domain import Kind, Variable
from pv.equations.examples import Example
from pv.equations.interpret import Interpreter, Value, variable_value
from pv.equations.language import Formula
from pv.equations.parse import Definition
from pv.equations.tensors import Tensors

RUNS = 8
"""Number of perturbed evaluations, with different signs of the roundings."""

_WHOLE_KINDS = (Kind.INT, Kind.INDEX, Kind.MASK, Kind.SIZE)
# The functions whose result is a whole number if their arguments are whole numbers.
_WHOLE_FUNCTIONS = frozenset(
    {"abs", "sign", "maximum", "minimum", "clip", "where", "sum", "prod", "max", "min", "count", "any", "all"}
)


def is_whole(equation: Definition) -> bool:
    """Return whether an equation computes whole numbers from whole numbers without rounding.

    Return False for an equation that calls another equation, since that equation is not examined.
    """
    nodes = [node for line in equation.formula.lines for node in ast.walk(line.value)]
    variables = equation.variables
    return all(variable.kind in _WHOLE_KINDS for variable in variables.values()) and all(
        _keeps_whole(node, variables) for node in nodes
    )


def evaluate(
    equation: Definition, example: Example, *, differentiable: str = "", unit: float = 0.0
) -> tuple[tuple[Tensor, ...], Tensor | None]:
    """Evaluate an equation on an example.

    Args:
        equation: The equation.
        example: The values of the variables and the sizes of the axes.
        differentiable: The name of a variable to differentiate by; "" for none.
        unit: 0 for one run without perturbation; otherwise the relative error of every operation, in `RUNS` runs.

    Returns:
        The values, each [runs, *axes], and the leaf tensor of the variable `differentiable`, or None for no variable.
    """
    environment = environment_of(equation.variables, example)
    leaf = None
    if differentiable:
        # A clone: the gradient must not be stored in the tensor of the example.
        leaf = environment[differentiable].content.clone().requires_grad_()
        environment[differentiable] = variable_value(equation.variables[differentiable], leaf)
    tensors = Tensors(example.sizes, unit=unit, runs=RUNS if unit else 1)
    # The interpreter checks literal indices against the largest sizes, as the type check does. An index beyond the size
    # of this example selects NaN.
    sizes = equation.callee.largest_sizes
    values = Interpreter(equation.formula, environment, sizes, tensors, equation.callees).values()
    ordered = (tensors.number(tensors.align(v, axes)) for v, axes in zip(values, equation.results, strict=True))
    return tuple(ordered), leaf


def exact_values(equation: Definition, example: Example) -> tuple[Tensor, ...]:
    """Return the values of an equation in float64 without perturbation, each [*axes]."""
    return tuple(result[0] for result in evaluate(equation, example)[0])


def environment_of(variables: Mapping[str, Variable], example: Example) -> dict[str, Value[Tensor]]:
    """Return the values of the variables on an example, each [1, *axes]."""
    return {name: variable_value(variables[name], array.unsqueeze(0)) for name, array in example.arrays.items()}


def _keeps_whole(node: ast.AST, variables: Mapping[str, Variable]) -> bool:
    """Return whether the operation of a node gives a whole number for whole operands, which are checked separately."""
    match node:
        case ast.Constant(value=number):
            return isinstance(number, int)
        case ast.Name(id=name):
            return name not in ("pi", "inf")
        case ast.Call(func=ast.Name(id=name)):
            return name in _WHOLE_FUNCTIONS
        case ast.BinOp(op=ast.Pow(), right=exponent):
            return _is_never_negative(exponent, variables)
        case _:
            return not isinstance(node, ast.Call | ast.Div)


def _is_never_negative(exponent: ast.expr, variables: Mapping[str, Variable]) -> bool:
    """Return whether an exponent is a literal, or a variable without negative values."""
    match exponent:
        case ast.Name(id=name) if name in variables:
            variable = variables[name]
            return not isinstance(variable.low, str) and variable.low >= 0 and variable.extra is None
        case _:
            return isinstance(exponent, ast.Constant)  # Python parses -1 as the negation of the literal 1


def admits(equation: Definition, example: Example) -> bool:
    """Return whether an example satisfies `requires`."""
    return equation.requires is None or bool(values_of(equation, equation.requires, example)[0].all())


def values_of(equation: Definition, formula: Formula, example: Example, unit: float = 0.0) -> list[Tensor]:
    """Return the values of a formula on an example, each [runs, *axes] with the union of the axes of all values.

    Args:
        equation: The equation whose variables and called equations the formula uses.
        formula: The formula, such as an invariant of the equation.
        example: The values of the variables and the sizes of the axes.
        unit: As in `evaluate`.
    """
    environment = environment_of(equation.variables, example)
    tensors = Tensors(example.sizes, unit=unit, runs=RUNS if unit else 1)
    sizes = equation.callee.largest_sizes
    values = Interpreter(formula, environment, sizes, tensors, equation.callees).values()
    axes = tuple(dict.fromkeys(axis for value in values for axis in value.axes))
    return [tensors.align(value, axes) for value in values]
