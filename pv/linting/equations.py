"""Rules about executable equations: each is in the language, fits its domain, and is held against something."""

import ast
from collections.abc import Iterator

from pv import binding
from pv.binding import Unbound
from pv.equations.parsed import Misplaced, Parsed, parse_equations
from pv.linting.context import Context, error
from pv.loading.check import did_you_mean
from pv.model import Equation, Finding, Target

CODES = {
    "domain": "PV181",
    "result": "PV181",
    "implemented_by": "PV182",
    "returns": "PV182",
    "derivative_of": "PV183",
}


def equations(context: Context) -> Iterator[Finding]:
    contract = context.contract
    by_name = {equation.name: equation for equation in contract.equations}
    parsed, problems = parse_equations(contract.executable)
    for problem in problems:
        yield _finding(by_name[problem.equation], problem)
    for equation in contract.equations:
        if equation.executable and "expression" not in equation.executable:
            keys = ", ".join(repr(key) for key in equation.executable)
            yield error("PV180", equation.where, f"{equation.name} has {keys} and no `expression`", "write one")
    yield from _attacked(context, parsed)
    yield from _implemented(context, parsed)


def _finding(equation: Equation, problem: Misplaced) -> Finding:
    key = problem.key.partition("/")[0]
    refusal = problem.refusal
    text = equation.texts.get(problem.key)
    where = text(refusal.line, refusal.column) if text is not None else equation.where
    message, _, hint = refusal.message.partition("; ")
    return error(
        CODES.get(key, "PV180"), where, f"{problem.key} of {equation.name}: {message}" if key else message, hint
    )


def _attacked(context: Context, parsed: dict[str, Parsed]) -> Iterator[Finding]:
    """An equation falsifier has an executable equation; an executable equation is a falsifier's or another's part."""
    contract, used = context.contract, set[str]()
    for falsifier in contract.falsifiers:
        if not falsifier.by_equation or falsifier.equation is None:
            continue
        name = falsifier.equation
        used.add(name)
        if name not in contract.executable and name in {e.name for e in contract.equations}:
            hint = "give the equation an `expression`, or the falsifier a `test`"
            yield error("PV184", falsifier.at("equation"), f"{falsifier.id}: {name!r} cannot be evaluated", hint)
        elif name in parsed and parsed[name].call is None and not _differentiates_code(parsed, name):
            hint = "say how the code is called: `implemented_by`"
            yield error("PV184", falsifier.at("equation"), f"{falsifier.id}: no code is held against {name!r}", hint)
    for each in parsed.values():
        used |= _names(each) | ({each.derivative.equation} if each.derivative else set())
    for equation in contract.equations:
        if equation.executable and equation.name not in used:
            hint = f"give a falsifier `equation: {equation.name}` and no `test`"
            yield error("PV185", equation.where, f"nothing is held against the equation {equation.name!r}", hint)


def _differentiates_code(parsed: dict[str, Parsed], name: str) -> bool:
    derivative = parsed[name].derivative
    return derivative is not None and derivative.equation in parsed and parsed[derivative.equation].call is not None


def _names(equation: Parsed) -> set[str]:
    """The names that an equation calls."""
    formulas = [equation.formula, *equation.invariants, *([equation.requires] if equation.requires else [])]
    nodes = (node for f in formulas for line in f.lines for node in ast.walk(line.value))
    return {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}


def _implemented(context: Context, parsed: dict[str, Parsed]) -> Iterator[Finding]:
    """The function of `implemented_by` exists in every subject that an equation is held against."""
    contract = context.contract
    by_name = {equation.name: equation for equation in contract.equations}
    for falsifier in contract.falsifiers:
        equation = parsed.get(falsifier.equation or "") if falsifier.by_equation else None
        if equation is None or equation.call is None or context.subject is not None:
            continue
        try:
            subject = contract.subject_of(falsifier)
        except LookupError:
            continue  # it has its own finding
        path = ".".join(part for part in (subject.attribute, equation.call.function) if part)
        try:
            binding.target_file(context.project, Target(subject.module, path))
        except Unbound as problem:
            if problem.kind != "name":
                continue
            where = by_name[equation.name].texts["implemented_by"](1, 1)
            hint = did_you_mean(path, list(problem.known))
            yield error("PV186", where, f"implemented_by of {equation.name}: {problem}", hint)
