"""The equations of a contract, parsed and checked against each other without torch: what `pv lint` runs."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pv.equations.accuracy import Accuracy, accuracy
from pv.equations.call import Call, parse_call, parse_returns
from pv.equations.domain import BadVariable, Variable, axis_bounds, parse_domain
from pv.equations.language import FUNCTIONS, Formula, Refusal, parse
from pv.equations.values import CONDITION, INDEX, Axes, Callee, Nothing, variable_value
from pv.equations.walk import Walk

_RESULT = re.compile(r"(?:real|prob|logprob|positive)(?:\[([A-Z]\w*(?:\s*,\s*[A-Z]\w*)*)\])?")
T = TypeVar("T")


class Misplaced(Exception):
    """A refusal and where it stands: the equation, the key (`invariants/0` for an item), the place in its text."""

    def __init__(self, equation: str, key: str, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.equation, self.key, self.refusal = equation, key, refusal


@dataclass(frozen=True, slots=True)
class Derivative:
    """Which equation this is the derivative of, and by which of its variables."""

    equation: str
    variable: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """One executable equation of a contract. `results`: the axes of each of its values."""

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

    @property
    def callee(self) -> Callee:
        return Callee(self.formula, self.variables)

    @property
    def sizes(self) -> dict[str, int]:
        """The largest size of each axis."""
        return {axis: high for axis, (_, high) in axis_bounds(self.variables).items()}


def parse_equations(raw: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Parsed], list[Misplaced]]:
    """The executable ones of a contract's equations (those with an `expression`), and everything wrong with them."""
    parsed: dict[str, Parsed] = {}
    problems: list[Misplaced] = []
    for name, keys in raw.items():
        if "expression" in keys:
            try:
                parsed[name] = _parsed(name, keys, raw)
            except Misplaced as problem:
                problems.append(problem)
    for equation in parsed.values():
        problems.extend(_against_each_other(equation, parsed))
    return parsed, problems


def _parsed(name: str, keys: Mapping[str, Any], raw: Mapping[str, Mapping[str, Any]]) -> Parsed:
    if name in FUNCTIONS:
        raise Misplaced(name, "", Refusal(f"{name!r} is a function of the language; give the equation another name"))
    derivative = _derivative(name, keys, raw)
    domain = keys.get("domain") or (raw[derivative.equation].get("domain") if derivative else None) or {}
    try:
        variables = parse_domain(domain)
    except BadVariable as bad:
        raise Misplaced(name, f"domain/{bad.variable}", bad.refusal) from bad
    results = _at(name, "result", lambda: _results(keys.get("result", "real")))
    call = keys.get("implemented_by")
    names = frozenset(variables) | frozenset(axis_bounds(variables))
    return Parsed(
        name=name,
        formula=_at(name, "expression", lambda: parse(_unframed(keys["expression"]))),
        variables=variables,
        results=results,
        requires=_optional(name, "requires", _requires(keys, derivative, raw)),
        invariants=tuple(
            _at(name, f"invariants/{place}", partial(parse, _unframed(text)))
            for place, text in enumerate(keys.get("invariants", ()))
        ),
        call=_at(name, "implemented_by", lambda: parse_call(call, names)) if call else None,
        returns=_at(name, "returns", lambda: parse_returns(keys["returns"], len(results)))
        if "returns" in keys
        else None,
        derivative=derivative,
        accuracy=accuracy(keys, raw[derivative.equation] if derivative else {}),
    )


def _requires(
    keys: Mapping[str, Any], derivative: Derivative | None, raw: Mapping[str, Mapping[str, Any]]
) -> str | None:
    """A derivative has a value where what it is the derivative of has one, unless it says otherwise."""
    own: str | None = keys.get("requires")
    return raw[derivative.equation].get("requires") if own is None and derivative else own


def _derivative(name: str, keys: Mapping[str, Any], raw: Mapping[str, Mapping[str, Any]]) -> Derivative | None:
    said = keys.get("derivative_of")
    if said is None:
        return None
    of = raw.get(said["equation"])
    if of is None or "expression" not in of:
        raise Misplaced(name, "derivative_of", Refusal(f"there is no executable equation {said['equation']!r}"))
    if said["with_respect_to"] not in of.get("domain", {}):
        message = f"{said['with_respect_to']!r} is not in the domain of {said['equation']}"
        raise Misplaced(name, "derivative_of", Refusal(message))
    return Derivative(said["equation"], said["with_respect_to"])


def _results(text: str) -> tuple[Axes, ...]:
    parts = [part.strip() for part in re.split(r",(?![^\[]*\])", text)]
    found = [_RESULT.fullmatch(part) for part in parts]
    if not all(found):
        raise Refusal(f"{text[:60]!r} is no result; write `real`, `real[B,T]`, or several with commas")
    return tuple(tuple(re.findall(r"[A-Z]\w*", match[1] or "")) for match in found if match is not None)


def _unframed(text: str) -> str:
    """Without the line ends around it; those of a block scalar are none of the expression's."""
    return text.strip("\n")


def _optional(name: str, key: str, text: str | None) -> Formula | None:
    return _at(name, key, lambda: parse(_unframed(text))) if text is not None else None


def _at(name: str, key: str, work: Callable[[], T]) -> T:
    try:
        return work()
    except Refusal as refusal:
        raise Misplaced(name, key, refusal) from refusal


def _against_each_other(equation: Parsed, all_: Mapping[str, Parsed]) -> Iterator[Misplaced]:
    callees = {name: each.callee for name, each in all_.items()}
    environment = {n: variable_value(v) for n, v in equation.variables.items() if v.kind != "size"}

    def values(formula: Formula, calling: tuple[str, ...] = ()) -> Any:
        return Walk(formula, environment, equation.sizes, Nothing(), callees, calling).values()

    def check_invariant(formula: Formula) -> None:
        _check_condition("an invariant", values(formula))

    try:
        found = _at(equation.name, "expression", lambda: values(equation.formula, (equation.name,)))
        _at(equation.name, "result", lambda: _check_results(equation, found))
        _at(equation.name, "derivative_of", lambda: _check_derivative(equation, all_))
        if equation.requires is not None:
            requires = equation.requires
            _at(equation.name, "requires", lambda: _check_condition("requires", values(requires), scalar=True))
        for place, invariant in enumerate(equation.invariants):
            _at(equation.name, f"invariants/{place}", partial(check_invariant, invariant))
    except Misplaced as problem:
        yield problem


def _check_results(equation: Parsed, found: Any) -> None:
    if len(found) != len(equation.results):
        raise Refusal(f"declares {len(equation.results)} values, the expression has {len(found)}")
    for axes, value in zip(equation.results, found, strict=True):
        if set(axes) != set(value.axes):
            raise Refusal(f"declares axes [{','.join(axes)}], the expression has [{','.join(value.axes)}]")
        if value.type == INDEX:
            raise Refusal("an index is no result; compare it or one_hot it")


def _check_derivative(equation: Parsed, all_: Mapping[str, Parsed]) -> None:
    derivative = equation.derivative
    if derivative is None or derivative.equation not in all_:
        return
    of = all_[derivative.equation]
    if of.results != ((),):
        raise Refusal(f"{of.name} is no single number, so it has no gradient")
    variable = of.variables[derivative.variable]
    if variable.kind not in ("logits", "real", "positive", "prob", "logprob"):
        raise Refusal(f"{derivative.variable} of {of.name} is {variable.kind}; differentiate by real numbers")
    if equation.results != (variable.axes,):
        raise Refusal(f"the result must be shaped as {derivative.variable}: real[{','.join(variable.axes)}]")
    if list(equation.variables) != list(of.variables):
        raise Refusal(f"the domain must be that of {of.name}; leave it out here")


def _check_condition(what: str, found: Any, *, scalar: bool = False) -> None:
    if len(found) != 1 or found[0].type != CONDITION:
        raise Refusal(f"{what} must be one condition, such as `any(y != -100, B, T)`")
    if scalar and found[0].axes:
        raise Refusal(f"{what} still has axes [{','.join(found[0].axes)}]; say any(...) or all(...) over them")
