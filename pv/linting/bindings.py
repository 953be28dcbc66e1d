"""Rules about code that a contract names: it exists, and takes what it will be given. Nothing of it is imported."""

import ast
from collections.abc import Iterator

from pv import binding
from pv.binding import Unbound
from pv.linting.context import Context, error, unbound
from pv.loading.check import did_you_mean
from pv.model import Binding, Falsifier, Finding, Harness, Run, Target, Where

ALLOWED_SETTINGS = {"max_examples", "suppress_health_check"}
TEST_CODES = {"file": "PV110", "name": "PV111", "source": "PV110"}
SUBJECT_CODES = {"file": "PV120", "name": "PV121", "source": "PV120"}


def tests(context: Context) -> Iterator[Finding]:
    for falsifier in context.contract.claims:
        if falsifier.test is None:
            continue
        needed = ["run"] if falsifier.run is not None else ["subject"]
        if falsifier.run is None and falsifier.devices != ("cpu",):
            needed.append("device")  # else the CPU would be measured under another device's name
        if isinstance(falsifier, Harness):
            needed += falsifier.bounds
        yield from _function(context, falsifier.test, falsifier.at("test"), falsifier.id, needed)
    for run in context.contract.runs:
        needed = ["subject", "device", "directory", "trace", *run.arguments]
        yield from _function(context, run.callable, run.where, run.name, needed)


def _function(context: Context, bound: Binding, where: Where, who: str, needed: list[str]) -> Iterator[Finding]:
    try:
        found = binding.function(context.project, bound)
        binding.module_name(context.project, found.path)
    except Unbound as problem:
        looked_for = bound.file if problem.kind == "file" else bound.name
        yield unbound(TEST_CODES, where, problem, looked_for)
        return
    missing = [name for name in needed if name not in found.parameters and not found.takes_any]
    if missing:
        takes = ", ".join(found.parameters) or "nothing"
        yield error("PV112", where, f"{who}: {bound} takes {takes}", f"it must take `{missing[0]}`")
    if found.is_lazy:
        yield error("PV112", where, f"{who}: {bound} is async or a generator", "its body would never run")
    for name in _settings(found.node):
        if name not in ALLOWED_SETTINGS:
            hint = "only max_examples and suppress_health_check are a falsifier's to set"
            yield error("PV113", where, f"{who}: {bound} sets Hypothesis's {name!r}", hint)


def _settings(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).split(".")[-1] == "settings":
            yield from (keyword.arg for keyword in decorator.keywords if keyword.arg is not None)


def subjects(context: Context) -> Iterator[Finding]:
    if context.subject is not None:
        yield from subject_exists(context, context.contract.where, str(context.subject))
        return
    claims: list[Falsifier | Run] = [*context.contract.claims, *context.contract.runs]
    seen: set[str] = set()
    for claim in claims:
        try:
            subject = str(context.contract.subject_of(claim))
        except StopIteration:
            continue  # an unknown run, which has its own finding
        except LookupError:
            name = claim.id if isinstance(claim, Falsifier) else claim.name
            yield error("PV122", claim.where, f"{name} has no subject", "name one here or for the whole contract")
            continue
        if subject not in seen:
            seen.add(subject)
            where = claim.at("subject") if isinstance(claim, Falsifier) else claim.where
            yield from subject_exists(context, where, subject)


def subject_exists(context: Context, where: Where, text: str) -> Iterator[Finding]:
    target = Target.parse(text)
    try:
        binding.target_file(context.project, target)
    except Unbound as problem:
        looked_for = target.module if problem.kind == "file" else target.attribute
        hint = did_you_mean(looked_for, list(problem.known)) if problem.known else ""
        yield error(SUBJECT_CODES[problem.kind], where, f"subject {text}: {problem}", hint)
