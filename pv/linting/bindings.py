"""Rules about code that a contract names: it exists, and accepts its arguments. Nothing of it is imported."""

import ast
from collections.abc import Iterator, Sequence

from pv.contract.claims import Falsifier, Run
from pv.contract.codes import Code
from pv.contract.finding import Finding, Location, error
from pv.contract.names import Binding, Target, UnknownName
from pv.contract.wording import did_you_mean
from pv.engines.registry import engine_of
from pv.engines.rule import Context, rule, unbound
from pv.source import resolve
from pv.source.resolve import Unbound

ALLOWED_SETTINGS = {"max_examples", "suppress_health_check"}
TEST_CODES = {"file": "PV110", "name": "PV111", "source": "PV110"}
SUBJECT_CODES = {"file": "PV120", "name": "PV121", "source": "PV120"}


@rule(
    Code("PV110", "a test or a run's callable has no file, or that, or one it imports, is not valid Python"),
    Code("PV111", "the function of a test, or of a run's callable, does not exist"),
    Code("PV112", "a function or command does not take its arguments: `subject` of a falsifier, `run` of a predicate"),
    Code("PV113", "a falsifier changes a Hypothesis setting other than max_examples and suppress_health_check"),
)
def tests(context: Context) -> Iterator[Finding]:
    for falsifier in context.contract.claims:
        if falsifier.test is None:
            continue
        yield from _function(
            context, falsifier.test, falsifier.at("test"), falsifier.id, engine_of(falsifier).parameters(falsifier)
        )
    for run in context.contract.runs:
        if run.callable is not None:
            needed = ("subject", "device", "directory", "trace", *run.arguments)
            yield from _function(context, run.callable, run.location, run.name, needed)
            continue
        for name in (name for name in (run.small or {}) if not any(f"{{{name}}}" in word for word in run.command)):
            hint = f"write {{{name}}} in one of its words"
            yield error("PV112", run.location, f"{run.name}: no word of the command has the argument {name!r}", hint)


def _function(
    context: Context, bound: Binding, location: Location, owner: str, needed: Sequence[str]
) -> Iterator[Finding]:
    try:
        found = resolve.function(context.project, bound)
        resolve.module_name(context.project, found.path)
        context.imports.closure([found.path])
    except Unbound as problem:
        looked_for = bound.file if problem.kind == "file" else bound.name
        yield unbound(TEST_CODES, location, problem, looked_for)
        return
    missing = [name for name in needed if name not in found.parameters and not found.takes_any]
    if missing:
        takes = ", ".join(found.parameters) or "nothing"
        names = ", ".join(f"`{name}`" for name in missing)
        hint = f"add the parameter{'s' if len(missing) > 1 else ''} {names}"
        yield error("PV112", location, f"{owner}: {bound} accepts {takes}", hint)
    if found.is_lazy:
        yield error(
            "PV112",
            location,
            f"{owner}: {bound} is async or a generator",
            "its body would never run",
        )
    for name in _settings(found.node):
        if name not in ALLOWED_SETTINGS:
            hint = "a falsifier sets only max_examples and suppress_health_check"
            yield error("PV113", location, f"{owner}: {bound} sets Hypothesis's {name!r}", hint)


def _settings(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).split(".")[-1] == "settings":
            yield from (keyword.arg for keyword in decorator.keywords if keyword.arg is not None)


@rule(
    Code("PV120", "a subject has no module below the project's roots, or that, or one it imports, is not valid Python"),
    Code("PV121", "the attribute of a subject does not exist"),
    Code("PV122", "a falsifier or run without a subject"),
)
def subjects(context: Context) -> Iterator[Finding]:
    if context.subject is not None:
        yield from subject_exists(context, context.contract.location, str(context.subject))
        return
    claims: list[tuple[str, Falsifier | Run]] = [(claim.id, claim) for claim in context.contract.claims]
    claims += [(run.name, run) for run in context.contract.runs]
    seen: set[str] = set()
    for name, claim in claims:
        try:
            subject = str(context.contract.subject_of(claim))
        except UnknownName:
            continue  # an unknown run, which has its own finding
        except LookupError:
            yield error("PV122", claim.location, f"{name} has no subject", "give it or the contract a `subject`")
            continue
        if subject not in seen:
            seen.add(subject)
            location = claim.at("subject") if isinstance(claim, Falsifier) else claim.location
            yield from subject_exists(context, location, subject)


def subject_exists(context: Context, location: Location, text: str) -> Iterator[Finding]:
    target = Target.parse(text)
    try:
        context.imports.closure([resolve.target_file(context.project, target)])
    except Unbound as problem:
        looked_for = target.module if problem.kind == "file" else target.attribute
        hint = did_you_mean(looked_for, problem.known) if problem.known else ""
        yield error(SUBJECT_CODES[problem.kind], location, f"subject {text}: {problem}", hint)
