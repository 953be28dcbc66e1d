"""Parse the equations of a contract from YAML keys to definitions, and check the axes and types of every formula.

This module does not import torch.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TypeVar

from pv.contract.model import Keys
from pv.contract.wording import did_you_mean
from pv.equations.call import Call, parse_call, parse_returns
from pv.equations.domain import DIFFERENTIABLE, InvalidVariable, Kind, Variable, axis_bounds, parse_domain
from pv.equations.interpret import Axes, Callee, Interpreter, NoContent, Value, ValueType, format_axes, variable_value
from pv.equations.language import FUNCTIONS, Formula, InvalidEquation, Part, Refusal, parse

UNITS = {"float64": 2.0**-52, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""The unit roundoff of each dtype: the largest relative error of one rounding.

For float64 it is 2**-53. Here it is 2**-52, because errors are simulated in float64, where 1 + 2**-53 rounds to 1.
"""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A tolerance that the contract sets instead of the measured one: relative * |value| + absolute.

    Attributes:
        why: The reason for the tolerance.
    """

    relative: float
    absolute: float
    why: str


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy that the code of an equation must have.

    Attributes:
        dtypes: The dtypes of the arrays that are passed to the code; the examples alternate between them.
        computes_in: The dtype of the code's operations; "" for the dtype of its arrays.
        tolerance: The tolerance that the contract sets; None to measure it.
    """

    dtypes: tuple[str, ...] = ("float32",)
    computes_in: str = "float32"
    tolerance: Tolerance | None = None

    def unit(self, dtype: str) -> float:
        """Return the unit roundoff of the code's operations on arrays of `dtype`."""
        return UNITS[self.computes_in or dtype]


def parse_accuracy(keys: Keys, inherited: Keys) -> Accuracy:
    """Return the accuracy that an equation claims.

    Args:
        keys: The keys of the equation.
        inherited: The keys of the differentiated equation, from which a derivative inherits `dtypes` and `precision`;
            empty if the equation is no derivative.
    """
    # The equation's own keys come last, so that they override inherited keys.
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
    """A check of the code, in addition to the comparison of values. The members' values are the names in a contract."""

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
    """The checks that one equation claims, in addition to the comparison of values.

    Attributes:
        names: The checks from the key `checks`.
        result_dtype: The required dtype of the result; "" for any, `input` for the dtype of the arrays.
    """

    names: frozenset[Check] = frozenset()
    result_dtype: str = ""

    def dtype(self, array_dtype: str) -> str:
        """Return the required dtype of the result, for arrays of dtype `array_dtype`; "" for any."""
        return array_dtype if self.result_dtype == "input" else self.result_dtype


def parse_checks(keys: Keys) -> Checks:
    """Return the checks that the keys of an equation claim."""
    return Checks(frozenset(map(Check, keys.get("checks", ()))), str(keys.get("result_dtype", "")))


@dataclass(frozen=True, slots=True)
class Derivative:
    """The value of `derivative_of`: the name of the differentiated equation, and the variable to differentiate by."""

    equation: str
    variable: str


@dataclass(frozen=True, slots=True)
class Definition:
    """One executable equation of a contract.

    Attributes:
        formula: The expression.
        variables: The variables of the domain by name.
        results: The axes of each value of the expression, in the order of the axes in the code's result.
        callees: All equations of the contract by name, which may call each other.
        requires: The condition that examples must satisfy; None for none.
        invariants: Conditions that must hold on every example.
        call: The call of the code, from `implemented_by`; None if no code implements the equation.
        returns: The expression that selects the value from the result of the call; None for the whole result.
        derivative: The differentiated equation and the variable; None if the equation is no derivative.
    """

    name: str
    formula: Formula
    variables: Mapping[str, Variable]
    results: tuple[Axes, ...]
    callees: Mapping[str, Callee]
    requires: Formula | None
    invariants: tuple[Formula, ...]
    call: Call | None
    returns: ast.expr | None
    derivative: Derivative | None
    accuracy: Accuracy
    checks: Checks

    @property
    def callee(self) -> Callee:
        """Return the equation in the form in which other equations call it."""
        return Callee(self.formula, self.variables)

    @property
    def formulas(self) -> Iterator[Formula]:
        """Yield the expression, the invariants and the condition `requires`."""
        yield from (self.formula, *self.invariants)
        if self.requires is not None:
            yield self.requires


# One item of the key `result`, such as `real` or `real[B,T]`; the group has the axes.
_RESULT = re.compile(r"(?:real|prob|logprob|positive)(?:\[([A-Z]\w*(?:\s*,\s*[A-Z]\w*)*)\])?")


def parse_equations(raw: Mapping[str, Keys]) -> tuple[dict[str, Definition], list[InvalidEquation]]:
    """Parse and check the executable equations of a contract.

    Args:
        raw: The keys of every equation by name, as read from YAML. Equations without `expression` are ignored.

    Returns:
        The definitions by name, and the problems: at most one for each equation.
    """
    definitions: dict[str, Definition] = {}
    problems: list[InvalidEquation] = []
    # All definitions share this mapping, which is filled below: an equation may call an equation that follows it.
    callees: dict[str, Callee] = {}
    for name, keys in raw.items():
        if "expression" in keys:
            try:
                definitions[name] = _definition(name, keys, raw, callees)
                callees[name] = definitions[name].callee
            except InvalidEquation as problem:
                problems.append(problem)
    for equation in definitions.values():
        try:
            _check_types(equation, definitions)
        except InvalidEquation as problem:
            problems.append(problem)
    return definitions, problems


def _definition(name: str, keys: Keys, raw: Mapping[str, Keys], callees: Mapping[str, Callee]) -> Definition:
    """Return the definition of one equation. Raise `InvalidEquation` for the first invalid key."""
    if name in FUNCTIONS:
        refusal = Refusal(f"reserved equation name {name!r}: it is a function", hint="choose another name")
        raise InvalidEquation(name, Part.NAME, refusal)
    derivative = locate(name, Part.DERIVATIVE_OF, lambda: _derivative(keys, raw))
    # A derivative inherits domain, condition, dtypes and precision of the equation that it differentiates.
    base = raw[derivative.equation] if derivative else {}
    variables = _variables(name, keys.get("domain") or base.get("domain") or {})
    results = locate(name, Part.RESULT, lambda: _results(keys.get("result", "real")))
    call, returns = keys.get("implemented_by"), keys.get("returns")
    names = frozenset(variables) | frozenset(axis_bounds(variables))
    requires = keys.get("requires", base.get("requires"))
    return Definition(
        name=name,
        formula=_formula(name, Part.EXPRESSION, keys["expression"]),
        variables=variables,
        results=results,
        callees=callees,
        requires=None if requires is None else _formula(name, Part.REQUIRES, requires),
        invariants=tuple(
            _formula(name, Part.INVARIANTS, text, str(index)) for index, text in enumerate(keys.get("invariants", ()))
        ),
        call=locate(name, Part.IMPLEMENTED_BY, lambda: parse_call(call, names)) if call else None,
        returns=None if returns is None else locate(name, Part.RETURNS, lambda: parse_returns(returns, len(results))),
        derivative=derivative,
        accuracy=parse_accuracy(keys, base),
        checks=parse_checks(keys),
    )


def _derivative(keys: Keys, raw: Mapping[str, Keys]) -> Derivative | None:
    """Return the value of `derivative_of`; None if the key is missing. Raise `Refusal` for an unknown name."""
    if "derivative_of" not in keys:
        return None
    name, variable = keys["derivative_of"]["equation"], keys["derivative_of"]["with_respect_to"]
    if "expression" not in raw.get(name, {}):
        raise Refusal(f"unknown executable equation {name!r}", hint=did_you_mean(name, raw))
    domain = raw[name].get("domain", {})
    if variable not in domain:
        raise Refusal(f"unknown variable {variable!r} of {name}", hint=did_you_mean(variable, domain))
    return Derivative(name, variable)


def _variables(name: str, domain: Mapping[str, str]) -> dict[str, Variable]:
    try:
        return parse_domain(domain)
    except InvalidVariable as problem:
        raise InvalidEquation(name, Part.DOMAIN, problem.refusal, problem.variable) from problem


def _results(text: str) -> tuple[Axes, ...]:
    """Return the axes of each value that the key `result` declares."""
    # Split at commas outside [ ]: `real[B,T], real` declares two values.
    parts = [part.strip() for part in re.split(r",(?![^\[]*\])", text)]
    matches = [_RESULT.fullmatch(part) for part in parts]
    if not all(matches):
        raise Refusal(f"invalid result {text[:60]!r}: expected `real`, `real[B,T]`, or several with commas")
    return tuple(tuple(re.findall(r"[A-Z]\w*", match[1] or "")) for match in matches if match is not None)


def _formula(name: str, part: Part, text: str, item: str = "") -> Formula:
    # The line ends around a YAML block scalar are not part of the expression.
    return locate(name, part, lambda: parse(text.strip("\n")), item)


T = TypeVar("T")
Values = tuple[Value[None], ...]
"""The values of a formula in the type check: axes and types without contents."""


def _check_types(equation: Definition, definitions: Mapping[str, Definition]) -> None:
    """Raise `InvalidEquation` for the first formula or result of an equation whose axes or types do not fit.

    Args:
        equation: The equation.
        definitions: The definitions of the contract by name, to look up a differentiated equation.
    """
    name, infer = equation.name, partial(infer_types, equation.callee, callees=equation.callees)
    values = locate(name, Part.EXPRESSION, lambda: infer(equation.formula, calling=(name,)))
    locate(name, Part.RESULT, lambda: _check_results(equation, values))
    locate(name, Part.DERIVATIVE_OF, lambda: _check_derivative(equation, definitions))
    if (requires := equation.requires) is not None:
        locate(name, Part.REQUIRES, lambda: _check_scalar(_condition(infer(requires))))
    for index, invariant in enumerate(equation.invariants):
        # `partial` binds the invariant of this round of the loop.
        locate(name, Part.INVARIANTS, partial(lambda formula: _condition(infer(formula)), invariant), str(index))


def infer_types(
    equation: Callee, formula: Formula, *, callees: Mapping[str, Callee], calling: tuple[str, ...] = ()
) -> Values:
    """Return the axes and the type of each value of a formula. Raise `Refusal` if axes or types do not fit.

    Args:
        equation: The equation whose variables the formula uses.
        formula: The formula.
        callees: The equations that the formula may call, by name.
        calling: The names of the equations whose formulas call this formula, to detect recursion.
    """
    environment = {n: variable_value(v, None) for n, v in equation.variables.items() if v.kind is not Kind.SIZE}
    return Interpreter(formula, environment, equation.largest_sizes, NoContent(), callees, calling).values()


def locate(equation: str, part: Part, work: Callable[[], T], item: str = "") -> T:
    """Return the result of `work`. Convert a `Refusal` to an `InvalidEquation` that names the part and the item."""
    try:
        return work()
    except Refusal as refusal:
        raise InvalidEquation(equation, part, refusal, item) from refusal


def _check_results(equation: Definition, values: Values) -> None:
    """Raise `Refusal` if `result` does not declare the number and the axes of the values, or a value is an index."""
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
    """Raise `Refusal` if a derivative does not fit the equation that it differentiates."""
    derivative = equation.derivative
    # If the differentiated equation is itself invalid, only that problem is reported.
    if derivative is None or derivative.equation not in definitions:
        return
    base = definitions[derivative.equation]
    if base.results != ((),):
        raise Refusal(f"{base.name} is not a single scalar, so it has no gradient")
    variable = base.variables[derivative.variable]
    if variable.kind not in DIFFERENTIABLE:
        message = f"cannot differentiate by {variable.name} of kind {variable.kind}"
        raise Refusal(message, hint=f"choose a variable of kind {', '.join(sorted(DIFFERENTIABLE))}")
    if equation.results != (variable.axes,):
        raise Refusal(f"`result` must have the axes of {variable.name}: real{format_axes(variable.axes)}")
    if list(equation.variables) != list(base.variables):
        raise Refusal(f"`domain` differs from the domain of {base.name}", hint="remove `domain`; it is inherited")


def _condition(values: Values) -> Value[None]:
    """Return the value of a formula. Raise `Refusal` unless the formula has one value, which is a condition."""
    if len(values) != 1 or values[0].type is not ValueType.CONDITION:
        raise Refusal("expected one condition, such as `any(y != -100, B, T)`")
    return values[0]


def _check_scalar(condition: Value[None]) -> None:
    if condition.axes:
        message = f"expected a condition without axes, got {format_axes(condition.axes)}"
        raise Refusal(message, hint="reduce it with any(...) or all(...)")
