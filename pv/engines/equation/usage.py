"""Rules about the use of equations: their functions exist and take the call, and every variable is used."""

import ast
from collections.abc import Iterator

from pv.contract import sharing
from pv.contract.codes import Code, Stops
from pv.contract.finding import Finding, error
from pv.contract.names import Target
from pv.contract.spelling import did_you_mean
from pv.engines.equation.rules import is_compared
from pv.engines.rule import Context, rule
from pv.equations.call import returned_names
from pv.equations.definition import Definition
from pv.equations.parse import parse_equations
from pv.source import definitions, resolve
from pv.source.resolve import Unbound


@rule(
    Code("PV186", "`implemented_by` of an equation names a function that the subject does not have"),
    Code("PV189", "`implemented_by` of an equation does not fit the parameters of its function"),
    Code("PV198", "`implemented_by` of an equation names a function that returns nothing"),
)
def implemented(context: Context) -> Iterator[Finding]:
    """Check that every subject with which an equation is compared has the function, and that it takes the call."""
    contract = context.contract
    parsed, _ = parse_equations(sharing.executable(contract))
    declared = {equation.name for equation in contract.equations}
    seen: set[tuple[str, Target]] = set()
    for falsifier in contract.falsifiers:
        equation = parsed.get(falsifier.equation or "") if is_compared(falsifier) else None
        if equation is None or equation.name not in declared or equation.call is None or context.subject is not None:
            continue
        try:
            subject = contract.subject_of(falsifier)
        except LookupError:
            continue  # reported by the rule about subjects
        if (equation.name, subject) not in seen:
            seen.add((equation.name, subject))
            yield from _calls(context, equation, subject)


def _calls(context: Context, equation: Definition, subject: Target) -> Iterator[Finding]:
    assert equation.call is not None
    (text,) = (e.texts["implemented_by"] for e in context.contract.equations if e.name == equation.name)
    for name, call in equation.call.calls:
        path = ".".join(part for part in (subject.attribute, name) if part)
        if name == equation.call.calls[0][0]:  # what a constructor or factory returns, its source need not tell
            problem = _missing(context, Target(subject.module, path))
            if problem is not None:
                hint = did_you_mean(path, problem.known)
                yield error("PV186", text(1, 1), f"implemented_by of {equation.name}: {problem}", hint)
                return
        refused = _refused(context, Target(subject.module, path), call)
        if refused:
            place = text(1, call.col_offset + 1) if equation.call.text.isascii() else text(1, 1)
            yield error(
                "PV189",
                place,
                f"implemented_by of {equation.name}: {name} {refused}",
                _signature(context, subject, path),
            )
    target = Target(subject.module, ".".join(part for part in (subject.attribute, equation.call.function) if part))
    if not _names_an_argument(equation) and _returns_nothing(context, target):
        message = f"implemented_by of {equation.name}: {equation.call.function} returns nothing"
        yield error("PV198", text(1, 1), message, _changed(equation))


def _names_an_argument(equation: Definition) -> bool:
    return equation.returns is not None and any(name in _arrays(equation) for name in returned_names(equation.returns))


def _arrays(equation: Definition) -> list[str]:
    """Return the arrays that the call passes."""
    passed = equation.call.names if equation.call is not None else frozenset()
    return [name for name, variable in equation.variables.items() if variable.axes and name in passed]


def _changed(equation: Definition) -> str:
    arrays = _arrays(equation)
    if not arrays:
        return "name a function that returns the value"
    return f"name the argument that it changes, such as `returns: {arrays[0]}`"


def _returns_nothing(context: Context, target: Target) -> bool:
    """Return whether the source of a function shows that it returns nothing but None."""
    try:
        function = definitions.definition(context.project, target)
    except Unbound:
        return False  # a file that cannot be read is reported elsewhere
    return isinstance(function, ast.FunctionDef) and definitions.returns_nothing(function)


def _missing(context: Context, target: Target) -> Unbound | None:
    try:
        resolve.target_file(context.project, target)
    except Unbound as problem:
        return problem if problem.kind == "name" else None
    return None


def _refused(context: Context, target: Target, call: ast.Call) -> str:
    try:
        accepted = definitions.parameters(context.project, target)
    except Unbound:
        return ""  # a file that cannot be read is reported elsewhere
    keywords = [str(keyword.arg) for keyword in call.keywords]
    return accepted.problem(len(call.args), keywords) if accepted is not None else ""


def _signature(context: Context, subject: Target, path: str) -> str:
    accepted = definitions.parameters(context.project, Target(subject.module, path))
    named = [*accepted.positional, *accepted.keyword] if accepted is not None else []
    return f"its parameters are {', '.join(named)}" if named else "it has no parameters"


@rule(Code("PV188", "a variable of an equation's domain that nothing uses", Stops.NOTHING))
def variables(context: Context) -> Iterator[Finding]:
    """Check that every variable is used: a variable that is drawn and not used is usually a forgotten argument."""
    parsed, _ = parse_equations(sharing.executable(context.contract))
    for equation in context.contract.equations:
        definition, written = parsed.get(equation.name), equation.executable.get("domain")
        for name in _unused(definition, parsed) if definition is not None and isinstance(written, dict) else ():
            text = equation.texts.get(f"domain/{name}")
            location = text(1, 1) if text is not None else equation.location
            message = f"{equation.name} does not use its variable {name!r}"
            yield error("PV188", location, message, "use it in `expression` or `implemented_by`, or remove it")


def _unused(equation: Definition, parsed: dict[str, Definition]) -> list[str]:
    derived = [
        definition
        for definition in parsed.values()
        if definition.derivative and definition.derivative.equation == equation.name
    ]
    used: set[str] = set()
    for definition in (equation, *derived):
        nodes = (node for formula in definition.formulas for line in formula.lines for node in ast.walk(line.value))
        used |= {node.id for node in nodes if isinstance(node, ast.Name)}
        used |= definition.call.names if definition.call is not None else set()
    for variable in equation.variables.values():
        used |= {*variable.axes, variable.of or "", str(variable.low), str(variable.high)}
    return [name for name in equation.variables if name not in used]
