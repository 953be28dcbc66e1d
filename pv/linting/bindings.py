"""Rules about code that a contract names: tests, callables of runs and subjects exist, and accept their arguments.

The code is parsed and not imported.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence

from pv.contract.claims import Falsifier, Run
from pv.contract.codes import Code, Stops
from pv.contract.finding import Finding, Location, error
from pv.contract.model import OtherSubject
from pv.contract.names import Binding, Target, UnknownName
from pv.contract.wording import did_you_mean
from pv.engines.registry import engine_of
from pv.engines.rule import Context, rule, unbound
from pv.source import resolve
from pv.source.resolve import Unbound

ALLOWED_SETTINGS = {"max_examples", "suppress_health_check"}
# The code of a finding by `Unbound.kind`.
TEST_CODES = {"file": "PV110", "name": "PV111", "source": "PV110"}
SUBJECT_CODES = {"file": "PV120", "name": "PV121", "source": "PV120"}


@rule(
    Code("PV110", "a test or a run's callable has no file, or that, or one it imports, is not valid Python"),
    Code("PV111", "the function of a test, or of a run's callable, does not exist"),
    Code("PV112", "a function or command does not take its arguments: `subject` of a falsifier, `run` of a predicate"),
    Code("PV113", "a falsifier changes a Hypothesis setting other than max_examples and suppress_health_check"),
)
def tests(context: Context) -> Iterator[Finding]:
    """Check the functions of claims and runs, and the placeholders of commands."""
    for falsifier in context.contract.claims:
        if falsifier.test is None:
            continue
        yield from _function(
            context, falsifier.test, falsifier.at("test"), falsifier.id, engine_of(falsifier).parameters(falsifier)
        )
    for run in context.contract.runs:
        if run.callable is not None:
            # A worker calls the function with these arguments, see `pv.engines.run`.
            needed = ("subject", "device", "directory", "trace", *run.arguments)
            yield from _function(context, run.callable, run.location, run.name, needed)
            continue
        for name in (name for name in (run.small or {}) if not any(f"{{{name}}}" in word for word in run.command)):
            hint = f"write {{{name}}} in one of its words"
            yield error("PV112", run.location, f"{run.name}: no word of the command has the argument {name!r}", hint)


def _function(
    context: Context, bound: Binding, location: Location, owner: str, needed: Sequence[str]
) -> Iterator[Finding]:
    """Check that a function exists, takes the arguments `needed`, and runs its body when it is called."""
    try:
        function = resolve.function(context.project, bound)
        resolve.module_name(context.project, function.path)
        context.imports.closure([function.path])  # raises Unbound for an imported file that is not Python
    except Unbound as problem:
        unresolved = bound.file if problem.kind == "file" else bound.name
        yield unbound(TEST_CODES, location, problem, unresolved)
        return
    missing = [name for name in needed if name not in function.parameters and not function.takes_any]
    if missing:
        takes = ", ".join(function.parameters) or "nothing"
        names = ", ".join(f"`{name}`" for name in missing)
        hint = f"add the parameter{'s' if len(missing) > 1 else ''} {names}"
        yield error("PV112", location, f"{owner}: {bound} accepts {takes}", hint)
    if function.is_lazy:
        yield error(
            "PV112",
            location,
            f"{owner}: {bound} is async or a generator",
            "its body would never run",
        )
    for name in _hypothesis_settings(function.node):
        if name not in ALLOWED_SETTINGS:
            hint = "a falsifier sets only max_examples and suppress_health_check"
            yield error("PV113", location, f"{owner}: {bound} sets Hypothesis's {name!r}", hint)


def _hypothesis_settings(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).split(".")[-1] == "settings":
            yield from (keyword.arg for keyword in decorator.keywords if keyword.arg is not None)


@rule(
    Code("PV120", "a subject has no module below the project's roots, or that, or one it imports, is not valid Python"),
    Code("PV121", "the attribute of a subject does not exist"),
    Code("PV122", "a falsifier or run without a subject"),
)
def subjects(context: Context) -> Iterator[Finding]:
    """Check that every claim and run has a subject, and that it exists."""
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
            continue  # an unknown run, which another rule reports
        except LookupError:
            yield error("PV122", claim.location, f"{name} has no subject", "give it or the contract a `subject`")
            continue
        if subject not in seen:  # one finding for a subject, however many claims have it
            seen.add(subject)
            location = claim.at("subject") if isinstance(claim, Falsifier) else claim.location
            yield from subject_exists(context, location, subject)


def subject_exists(context: Context, location: Location, text: str) -> Iterator[Finding]:
    """Check that a subject exists, and that all code that it imports from the project can be parsed."""
    target = Target.parse(text)
    try:
        context.imports.closure([resolve.target_file(context.project, target)])
    except Unbound as problem:
        unresolved = target.module if problem.kind == "file" else target.attribute
        hint = did_you_mean(unresolved, problem.known) if problem.known else ""
        yield error(SUBJECT_CODES[problem.kind], location, f"subject {text}: {problem}", hint)


@rule(
    Code("PV195", "`not_claimed` of another subject names a falsifier that is not declared", Stops.NOTHING),
    Code("PV196", "`claims_as` of another subject names a subject that is not declared before it", Stops.NOTHING),
    Code("PV197", "two other subjects with the same target", Stops.NOTHING),
)
def other_subjects(context: Context) -> Iterator[Finding]:
    """Check that other subjects exist, differ, and refer to existing falsifiers and to subjects before them."""
    earlier: dict[str, OtherSubject] = {}
    for subject in context.contract.subjects:
        yield from subject_exists(context, subject.location, str(subject.target))
        yield from _unknown_references(context, subject, list(earlier))
        yield from _duplicate_target(subject, earlier.values())
        earlier[subject.name] = subject


def _duplicate_target(subject: OtherSubject, earlier: Iterable[OtherSubject]) -> Iterator[Finding]:
    for first in earlier:
        if first.target == subject.target:
            message = f"{subject.name}: duplicate target {subject.target} (first used by {first.name})"
            yield error("PV197", subject.location, message, "remove one of them, or give it a function of its own")
            return


def _unknown_references(context: Context, subject: OtherSubject, earlier: list[str]) -> Iterator[Finding]:
    if subject.claims_as and subject.claims_as not in earlier:
        message = f"{subject.name}: unknown subject {subject.claims_as!r} in `claims_as`; it must be declared before"
        yield error("PV196", subject.location, message, did_you_mean(subject.claims_as, earlier))
    ids = [falsifier.id for falsifier in context.contract.falsifiers]
    for entry in subject.not_claimed:
        for id_, location in zip(entry.falsifiers, entry.places, strict=True):
            if id_ not in ids:
                yield error("PV195", location, f"{subject.name}: unknown falsifier {id_!r}", did_you_mean(id_, ids))
