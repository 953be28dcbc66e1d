"""Lint rules of executable equations: their keys, their uses, and the code that is compared with them."""

import ast
from collections.abc import Iterator

from pv.contract import sharing
from pv.contract.codes import Code, Stops
from pv.contract.finding import Finding, error
from pv.contract.model import Contract, Equation, Falsifier, Target
from pv.contract.wording import did_you_mean
from pv.engines.rule import Context, rule
from pv.equations.call import returned_names
from pv.equations.language import InvalidEquation, Part
from pv.equations.parse import Definition, parse_equations
from pv.source import resolve
from pv.source.resolve import Unbound

# The lint code for each part of an equation that can be invalid.
CODES = {
    Part.NAME: "PV180",
    Part.EXPRESSION: "PV180",
    Part.REQUIRES: "PV180",
    Part.INVARIANTS: "PV180",
    Part.DOMAIN: "PV181",
    Part.RESULT: "PV181",
    Part.IMPLEMENTED_BY: "PV182",
    Part.RETURNS: "PV182",
    Part.DERIVATIVE_OF: "PV183",
}


def is_compared(claim: Falsifier) -> bool:
    """Return whether the claim's equation itself is compared with the code: it has an equation and no test."""
    return claim.test is None and claim.equation is not None


@rule(
    Code("PV180", "an expression, `requires` or invariant that is not in the language, or whose axes do not fit"),
    Code("PV181", "the domain or result of an equation cannot be read"),
    Code("PV182", "`implemented_by` or `returns` of an equation is not in the language"),
    Code("PV183", "`derivative_of` names what cannot be differentiated, or its equation has another domain or result"),
    Code("PV184", "a falsifier without a test whose equation cannot be evaluated, or is compared with no code"),
    Code("PV185", "an executable equation that no falsifier and no other equation uses", Stops.NOTHING),
    Code("PV187", "an unknown, duplicate or circular name in `use`, `domains` or `constants`"),
)
def equations(context: Context) -> Iterator[Finding]:
    """Check the keys of executable equations and the names in these keys, and that each equation is used."""
    contract = context.contract
    by_name = {equation.name: equation for equation in contract.equations}
    unknown = list(_unknown_names(contract))
    yield from (finding for _, finding in unknown)
    yield from _import_faults(contract)
    definitions, problems = parse_equations(sharing.executable_equations(contract))
    incomplete = {name for name, _ in unknown}
    for problem in problems:
        # A problem of an equation that `use` imports is reported for the contract that defines the equation.
        if problem.equation in by_name and problem.equation not in incomplete:
            yield _finding(by_name[problem.equation], problem)
    for equation in contract.equations:
        if equation.executable and "expression" not in equation.executable:
            keys = ", ".join(repr(key) for key in equation.executable)
            hint = f"required with {keys}"
            yield error("PV180", equation.location, f"{equation.name}: missing key 'expression'", hint)
    yield from _usage_faults(context, definitions)


def _unknown_names(contract: Contract) -> Iterator[tuple[str, Finding]]:
    """Yield the name of the equation and a finding for each unknown `$name`."""
    by_name = {equation.name: equation for equation in contract.equations}
    shared_names = list(sharing.shared_values(contract))
    for equation, key, name, position in sharing.unknown_references(contract):
        text = by_name[equation].texts.get(key)
        location = text(*position) if text is not None else by_name[equation].location
        message = f"{key} of {equation}: unknown '${name}'"
        yield equation, error("PV187", location, message, did_you_mean(name, shared_names))


def _import_faults(contract: Contract) -> Iterator[Finding]:
    """Check `use`, `domains` and `constants`.

    Yield a finding for each name that is both a domain and a constant, and for each entry of `use` that cannot be
    resolved, is circular, or imports a different equation under an existing name.
    """
    for name in sorted(set(contract.domains) & set(contract.constants)):
        yield error("PV187", contract.location, f"{name!r} is both a domain and a constant", "rename one")
    cycle = sharing.find_cycle(contract)
    # The keys of imported equations by name; None for the contract's own equations, which no import may redefine.
    defined: dict[str, object] = {equation.name: None for equation in contract.equations}
    for used in contract.use:
        id_, name = sharing.split_entry(used)
        if id_ == contract.id or id_ not in contract.known:
            other_ids = [other for other in contract.known if other != contract.id]
            yield error("PV187", used.location, f"unknown contract {id_!r} in 'use'", did_you_mean(id_, other_ids))
            continue
        # The cycle starts with the id of this contract, so the entry of `use` to report names the second id.
        if id_ in cycle[1:2]:
            message, hint = f"circular 'use': {' -> '.join(cycle)}", "move the equation to one of these contracts"
            yield error("PV187", used.location, message, hint)
            continue
        equations_there = sharing.executable_equations(contract.known[id_])
        if name not in equations_there:
            message = f"unknown executable equation {name!r} of {id_}"
            yield error("PV187", used.location, message, did_you_mean(name, equations_there))
        for equation, keys in sharing.imported_equations(contract, used).items():
            if equation in defined and defined[equation] != keys:
                message = f"duplicate equation {equation!r}: {used.text} is a different one"
                yield error("PV187", used.location, message, "rename one of the two")
            defined.setdefault(equation, keys)


def _finding(equation: Equation, problem: InvalidEquation) -> Finding:
    """Return the finding for an invalid equation, at the position of the problem."""
    refusal, code = problem.refusal, CODES[problem.part]
    if problem.part is Part.NAME:
        return error(code, equation.location, refusal.message, refusal.hint)
    text = equation.texts.get(problem.key)
    if problem.part is Part.RESULT and text is None:
        return error(code, equation.location, f"{equation.name}: missing key 'result': {refusal.message}", refusal.hint)
    location = text(refusal.line, refusal.column) if text is not None else equation.location
    return error(code, location, f"{problem.key} of {equation.name}: {refusal.message}", refusal.hint)


def _usage_faults(context: Context, definitions: dict[str, Definition]) -> Iterator[Finding]:
    """Yield findings for falsifiers whose equation cannot be compared with code, and for unused equations."""
    contract, used = context.contract, set[str]()
    for falsifier in contract.falsifiers:
        if falsifier.equation is None or not is_compared(falsifier):
            continue
        name = falsifier.equation
        used.add(name)
        if name not in sharing.executable_equations(contract) and name in {e.name for e in contract.equations}:
            hint = "add an `expression` to the equation, or a `test` to the falsifier"
            message = f"{falsifier.id}: equation {name!r} is not executable"
            yield error("PV184", falsifier.at("equation"), message, hint)
        elif name in definitions and not _compares_code(definitions, name):
            message = f"{falsifier.id}: equation {name!r} is not compared with any code"
            yield error("PV184", falsifier.at("equation"), message, "add `implemented_by` to the equation")
    for other in contract.known.values():
        used |= {name for id_, name in map(sharing.split_entry, other.use) if id_ == contract.id}
    for definition in definitions.values():
        used |= {name for formula in definition.formulas for name in formula.called}
        used |= {definition.derivative.equation} if definition.derivative else set()
    for equation in contract.equations:
        if equation.executable and equation.name not in used:
            hint = f"add a falsifier with `equation: {equation.name}` and no `test`"
            yield error("PV185", equation.location, f"no falsifier checks the equation {equation.name!r}", hint)


def _compares_code(definitions: dict[str, Definition], name: str) -> bool:
    """Return whether an equation, or for a derivative its equation, has an implementation."""
    derivative = definitions[name].derivative
    base = definitions.get(derivative.equation) if derivative is not None else None
    return definitions[name].call is not None or (base is not None and base.call is not None)


@rule(
    Code("PV186", "`implemented_by` of an equation names a function that the subject does not have"),
    Code("PV189", "`implemented_by` of an equation does not fit the parameters of its function"),
    Code("PV198", "`implemented_by` of an equation names a function that returns nothing"),
)
def implemented(context: Context) -> Iterator[Finding]:
    """Check that every subject that is compared with an equation has a function that accepts the call."""
    contract = context.contract
    parsed, _ = parse_equations(sharing.executable_equations(contract))
    declared = {equation.name for equation in contract.equations}
    # Several falsifiers may compare the same equation with the same subject: report it once.
    seen: set[tuple[str, Target]] = set()
    for falsifier in contract.falsifiers:
        equation = parsed.get(falsifier.equation or "") if is_compared(falsifier) else None
        if equation is None or equation.name not in declared or equation.call is None or context.subject is not None:
            continue  # a subject from the command line is not checked here: a trial reports a call that it rejects
        try:
            subject = contract.subject_of(falsifier)
        except LookupError:
            continue  # reported by the rule about subjects
        if (equation.name, subject) not in seen:
            seen.add((equation.name, subject))
            yield from _call_faults(context, equation, subject)


def _call_faults(context: Context, equation: Definition, subject: Target) -> Iterator[Finding]:
    """Yield findings for calls that the subject cannot accept, and for a function that returns nothing."""
    assert equation.call is not None
    (text,) = (e.texts["implemented_by"] for e in context.contract.equations if e.name == equation.name)
    for name, call in equation.call.calls:
        path = ".".join(part for part in (subject.attribute, name) if part)
        # Only the first call names a part of the subject. Later calls are methods of a returned object, whose class the
        # source may not show.
        if name == equation.call.calls[0][0]:
            problem = _missing_name(context, Target(subject.module, path))
            if problem is not None:
                hint = did_you_mean(path, problem.known)
                yield error("PV186", text(1, 1), f"implemented_by of {equation.name}: {problem}", hint)
                return
        if mismatch := _mismatch(context, Target(subject.module, path), call):
            # `ast` counts columns in bytes, so the column in characters is only known for ASCII.
            location = text(1, call.col_offset + 1) if equation.call.text.isascii() else text(1, 1)
            message = f"implemented_by of {equation.name}: {name} {mismatch}"
            yield error("PV189", location, message, _signature(context, subject, path))
    target = Target(subject.module, ".".join(part for part in (subject.attribute, equation.call.function) if part))
    if not _names_an_argument(equation) and _returns_nothing(context, target):
        message = f"implemented_by of {equation.name}: {equation.call.function} returns nothing"
        yield error("PV198", text(1, 1), message, _hint_for_no_value(equation))


def _names_an_argument(equation: Definition) -> bool:
    """Return whether `returns` names an array argument, which the code changes in place."""
    return equation.returns is not None and any(name in _arrays(equation) for name in returned_names(equation.returns))


def _arrays(equation: Definition) -> list[str]:
    """Return the names of the array variables that the call passes."""
    passed = equation.call.names if equation.call is not None else frozenset()
    return [name for name, variable in equation.variables.items() if variable.axes and name in passed]


def _hint_for_no_value(equation: Definition) -> str:
    """Return the hint for a function that returns nothing, so that the comparison has no value."""
    arrays = _arrays(equation)
    if not arrays:
        return "name a function that returns the value"
    return f"name the argument that it changes, such as `returns: {arrays[0]}`"


def _returns_nothing(context: Context, target: Target) -> bool:
    """Return whether the source of a function shows that it returns nothing but None."""
    try:
        function = resolve.definition(context.project, target)
    except Unbound:
        return False  # a file that cannot be read is reported elsewhere
    return isinstance(function, ast.FunctionDef) and resolve.returns_nothing(function)


def _missing_name(context: Context, target: Target) -> Unbound | None:
    """Return the error if the target does not exist; None if it exists, or if its module cannot be read."""
    try:
        resolve.target_file(context.project, target)
    except Unbound as problem:
        return problem if problem.kind == "name" else None
    return None


def _mismatch(context: Context, target: Target, call: ast.Call) -> str:
    """Return why a function does not accept the arguments of a call; "" if it accepts them, or cannot be read."""
    try:
        parameters = resolve.parameters(context.project, target)
    except Unbound:
        return ""  # a file that cannot be read is reported elsewhere
    keywords = [str(keyword.arg) for keyword in call.keywords]
    return parameters.problem(len(call.args), keywords) if parameters is not None else ""


def _signature(context: Context, subject: Target, path: str) -> str:
    """Describe the parameters of a function, for a hint."""
    parameters = resolve.parameters(context.project, Target(subject.module, path))
    names = [*parameters.positional, *parameters.keyword] if parameters is not None else []
    return f"its parameters are {', '.join(names)}" if names else "it has no parameters"


@rule(Code("PV188", "a variable of an equation's domain that nothing uses", Stops.NOTHING))
def variables(context: Context) -> Iterator[Finding]:
    """Check that every variable is used, since an unused variable is usually a forgotten argument."""
    parsed, _ = parse_equations(sharing.executable_equations(context.contract))
    for equation in context.contract.equations:
        definition = parsed.get(equation.name)
        if definition is None or not isinstance(equation.executable.get("domain"), dict):
            continue  # invalid, or a derivative that inherits its domain
        for name in _unused_variables(definition, parsed):
            text = equation.texts.get(f"domain/{name}")
            location = text(1, 1) if text is not None else equation.location
            message = f"{equation.name} does not use its variable {name!r}"
            yield error("PV188", location, message, "use it in `expression` or `implemented_by`, or remove it")


def _unused_variables(equation: Definition, parsed: dict[str, Definition]) -> list[str]:
    """Return the variables that neither the equation nor its derivatives use."""
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
        # Sizes and bounds count as used by the variables that name them.
        used |= {*variable.axes, variable.of or "", str(variable.low), str(variable.high)}
    return [name for name in equation.variables if name not in used]
