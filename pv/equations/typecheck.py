"""The static check of equations: axes and types of every formula, against what the equation declares. Without torch."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from pv.equations.broadcast import format_axes
from pv.equations.definition import Definition
from pv.equations.domain import DIFFERENTIABLE, Kind
from pv.equations.interpret import Interpreter
from pv.equations.language import Formula
from pv.equations.refusal import InvalidEquation, Part, Refusal
from pv.equations.values import Callee, NoContent, Value, ValueType, variable_value

T = TypeVar("T")
Values = tuple[Value[None], ...]


def check(equation: Definition, definitions: Mapping[str, Definition]) -> Iterator[InvalidEquation]:
    """Yield the first problem of an equation, if any. `definitions` are all equations that it may call."""
    try:
        _check(equation, definitions)
    except InvalidEquation as problem:
        yield problem


def _check(equation: Definition, definitions: Mapping[str, Definition]) -> None:
    name, callees = equation.name, {definition.name: definition.callee for definition in definitions.values()}
    of = partial(types, equation.callee, callees=callees)
    values = locate(name, Part.EXPRESSION, lambda: of(equation.formula, calling=(name,)))
    locate(name, Part.RESULT, lambda: _check_results(equation, values))
    locate(name, Part.DERIVATIVE_OF, lambda: _check_derivative(equation, definitions))
    if (requires := equation.requires) is not None:
        locate(name, Part.REQUIRES, lambda: _check_scalar(_condition(of(requires))))
    for place, invariant in enumerate(equation.invariants):
        locate(name, Part.INVARIANTS, partial(lambda formula: _condition(of(formula)), invariant), str(place))


def types(
    equation: Callee, formula: Formula, *, callees: Mapping[str, Callee], calling: tuple[str, ...] = ()
) -> Values:
    """Return the values of a formula over the variables of an equation, without content. Raise `Refusal`."""
    environment = {n: variable_value(v, None) for n, v in equation.variables.items() if v.kind is not Kind.SIZE}
    return Interpreter(formula, environment, equation.largest_sizes, NoContent(), callees, calling).values()


def locate(equation: str, part: Part, work: Callable[[], T], item: str = "") -> T:
    """Return the result of `work`. Raise its `Refusal` as `InvalidEquation` of the given part."""
    try:
        return work()
    except Refusal as refusal:
        raise InvalidEquation(equation, part, refusal, item) from refusal


def _check_results(equation: Definition, values: Values) -> None:
    if len(values) != len(equation.results):
        raise Refusal(f"declares {len(equation.results)} values, the expression has {len(values)}")
    for axes, value in zip(equation.results, values, strict=True):
        if set(axes) != set(value.axes):
            message = f"declares axes {format_axes(axes)}, the expression has {format_axes(value.axes)}"
            raise Refusal(
                message, hint=f"write `result: real{format_axes(value.axes)}`" if value.axes else "write `result: real`"
            )
        if value.type is ValueType.INDEX:
            raise Refusal("a result cannot be an index", hint="compare it, or use one_hot")


def _check_derivative(equation: Definition, definitions: Mapping[str, Definition]) -> None:
    derivative = equation.derivative
    if derivative is None or derivative.equation not in definitions:
        return
    of = definitions[derivative.equation]
    if of.results != ((),):
        raise Refusal(f"{of.name} is not a single scalar, so it has no gradient")
    variable = of.variables[derivative.variable]
    if variable.kind not in DIFFERENTIABLE:
        message = f"cannot differentiate by {variable.name} of kind {variable.kind}"
        raise Refusal(message, hint=f"choose a variable of kind {', '.join(sorted(DIFFERENTIABLE))}")
    if equation.results != (variable.axes,):
        raise Refusal(f"`result` must have the axes of {variable.name}: real{format_axes(variable.axes)}")
    if list(equation.variables) != list(of.variables):
        raise Refusal(f"`domain` differs from that of {of.name}", hint="remove `domain`; it is inherited")


def _condition(values: Values) -> Value[None]:
    if len(values) != 1 or values[0].type is not ValueType.CONDITION:
        raise Refusal("expected one condition, such as `any(y != -100, B, T)`")
    return values[0]


def _check_scalar(condition: Value[None]) -> None:
    if condition.axes:
        message = f"expected a condition without axes, got {format_axes(condition.axes)}"
        raise Refusal(message, hint="reduce it with any(...) or all(...)")
