"""The equations of a contract, parsed from its YAML keys and type-checked, without torch."""

import re
from collections.abc import Mapping
from typing import Any

from pv.contract.spelling import did_you_mean
from pv.equations.accuracy import accuracy
from pv.equations.call import parse_call
from pv.equations.checks import checks
from pv.equations.definition import Definition, Derivative
from pv.equations.domain import InvalidVariable, Variable, axis_bounds, parse_domain
from pv.equations.language import FUNCTIONS, Formula, parse
from pv.equations.refusal import InvalidEquation, Part, Refusal
from pv.equations.returns import parse_returns
from pv.equations.typecheck import check, locate
from pv.equations.values import Axes

_RESULT = re.compile(r"(?:real|prob|logprob|positive)(?:\[([A-Z]\w*(?:\s*,\s*[A-Z]\w*)*)\])?")
Keys = Mapping[str, Any]
"""The keys of one equation as read from YAML; the JSON Schema has checked their types."""


def parse_equations(raw: Mapping[str, Keys]) -> tuple[dict[str, Definition], list[InvalidEquation]]:
    """Return the equations that have an `expression`, by name, and the problems of all of them."""
    definitions: dict[str, Definition] = {}
    problems: list[InvalidEquation] = []
    for name, keys in raw.items():
        if "expression" in keys:
            try:
                definitions[name] = _definition(name, keys, raw)
            except InvalidEquation as problem:
                problems.append(problem)
    for equation in definitions.values():
        problems.extend(check(equation, definitions))
    return definitions, problems


def _definition(name: str, keys: Keys, raw: Mapping[str, Keys]) -> Definition:
    if name in FUNCTIONS:
        refusal = Refusal(f"reserved equation name {name!r}: it is a function", hint="choose another name")
        raise InvalidEquation(name, Part.NAME, refusal)
    derivative = locate(name, Part.DERIVATIVE_OF, lambda: _derivative(keys, raw))
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
        requires=None if requires is None else _formula(name, Part.REQUIRES, requires),
        invariants=tuple(
            _formula(name, Part.INVARIANTS, text, str(place)) for place, text in enumerate(keys.get("invariants", ()))
        ),
        call=locate(name, Part.IMPLEMENTED_BY, lambda: parse_call(call, names)) if call else None,
        returns=None if returns is None else locate(name, Part.RETURNS, lambda: parse_returns(returns, len(results))),
        derivative=derivative,
        accuracy=accuracy(keys, base),
        checks=checks(keys),
    )


def _derivative(keys: Keys, raw: Mapping[str, Keys]) -> Derivative | None:
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
    parts = [part.strip() for part in re.split(r",(?![^\[]*\])", text)]
    matches = [_RESULT.fullmatch(part) for part in parts]
    if not all(matches):
        raise Refusal(f"invalid result {text[:60]!r}: expected `real`, `real[B,T]`, or several with commas")
    return tuple(tuple(re.findall(r"[A-Z]\w*", match[1] or "")) for match in matches if match is not None)


def _formula(name: str, part: Part, text: str, item: str = "") -> Formula:
    # The line ends around a YAML block scalar are not part of the expression.
    return locate(name, part, lambda: parse(text.strip("\n")), item)
