"""Rules about harnesses: the box is valid, the predicate accepts its points, and what it reaches can be proved.

The code that a predicate reaches is found by name: every definition of the project with a name that it uses, and so on.
That is an upper bound, so code may be refused that is never called.
"""

import ast
import contextlib
from collections.abc import Iterator
from pathlib import Path

from pv.contract import bounds
from pv.contract.claims import Harness
from pv.contract.codes import Code, Stops
from pv.contract.finding import Finding
from pv.engines.harness.reach import Definition, module_of, reached
from pv.engines.harness.state import kept_state
from pv.engines.rule import Context, error, rule
from pv.source import imports, resolve
from pv.source.resolve import Unbound

NO_SOLVER = {"torch", "numpy", "scipy", "jax", "tensorflow", "pandas", "ctypes"}
FILES = {"io", "os", "pathlib", "shutil", "tempfile", "glob", "fileinput", "mmap", "sqlite3", "logging"}
CLOCK = {"time", "datetime", "calendar"}
RANDOMNESS = {"random", "secrets", "uuid", "hypothesis"}
PROCESSES = {
    "subprocess",
    "multiprocessing",
    "threading",
    "concurrent",
    "asyncio",
    "signal",
    "socket",
    "urllib",
    "http",
}
PYTHON = {"sys", "importlib", "builtins", "gc", "inspect", "weakref"}
WHY = {
    **dict.fromkeys(NO_SOLVER, "no solver can follow it"),
    **dict.fromkeys(FILES, "it reads or writes files"),
    **dict.fromkeys(CLOCK, "its value depends on the clock"),
    **dict.fromkeys(RANDOMNESS, "its value is random"),
    **dict.fromkeys(PYTHON, "its value depends on the interpreter's state"),
    **dict.fromkeys(PROCESSES, "a proof covers no other process or thread"),
}
BUILTINS = {"open", "input", "print", "exec", "eval", "__import__", "breakpoint"}


@rule(
    Code("PV190", "a bound of a harness admits no value", Stops.NOTHING),
    Code("PV191", "`requires` of a harness is not an expression over its bounds"),
)
def boxes(context: Context) -> Iterator[Finding]:
    for harness in context.contract.harnesses:
        for name, text in harness.bounds.items():
            if bounds.bound(text).empty:
                hint = "write the lower end first"
                yield error("PV190", harness.at(f"bounds/{name}"), f"{harness.id}: {name} {text} admits no value", hint)
        try:
            bounds.precondition(harness.requires, tuple(harness.bounds))
        except ValueError as problem:
            hint = f"compare the bounds {', '.join(harness.bounds)} with numbers or each other"
            yield error("PV191", harness.at("requires"), f"{harness.id}: {problem}", hint)


@rule(
    Code("PV192", "a harness reaches what no proof can follow: torch, files, the clock, randomness, other processes"),
    Code("PV193", "a harness keeps state between calls, so a proof of one call says nothing about the next"),
    Code("PV194", "a predicate that has no assert and returns nothing, so it cannot fail"),
)
def predicates(context: Context) -> Iterator[Finding]:
    for harness in context.contract.harnesses:
        with contextlib.suppress(Unbound, LookupError):  # these have findings of their own
            yield from _arguments(context, harness)
            yield from _cannot_fail(context, harness)
            yield from _impure(context, harness)


def _arguments(context: Context, harness: Harness) -> Iterator[Finding]:
    assert harness.test is not None
    arguments = resolve.function(context.project, harness.test).node.args
    named = [*arguments.posonlyargs, *arguments.args]
    optional = [a.arg for a in named[len(named) - len(arguments.defaults) :]]
    optional += [a.arg for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default]
    for argument in (*named, *arguments.kwonlyargs):
        if argument.arg not in ("subject", *harness.bounds, *optional):
            message = f"{harness.id}: {harness.test} has the parameter `{argument.arg}`, which has no bound"
            yield error("PV112", harness.at("test"), message, f"add it to `bounds`, for example {argument.arg}: 0..8")


def _cannot_fail(context: Context, harness: Harness) -> Iterator[Finding]:
    """Yield a finding for a predicate without an assert or a result: it would hold unless the code raises."""
    assert harness.test is not None
    path = resolve.function(context.project, harness.test).path
    module = module_of(resolve.module_name(context.project, path), path, resolve.parse(path))
    nodes = (n for d in reached([module], path, harness.test.name) for n in ast.walk(d.node))
    if not any(isinstance(n, ast.Assert | ast.Raise) or (isinstance(n, ast.Return) and n.value) for n in nodes):
        message = f"{harness.id}: {harness.test} has no assert and returns nothing, so it cannot fail"
        yield error("PV194", harness.at("test"), message, "assert the claim, or return whether it holds")


def _impure(context: Context, harness: Harness) -> Iterator[Finding]:
    """Yield a finding for the first impure operation in each definition that it reaches."""
    assert harness.test is not None
    subject = context.subject or context.contract.subject_of(harness)
    predicate = resolve.function(context.project, harness.test)
    start = [predicate.path, resolve.target_file(context.project, subject)]
    files, _ = imports.closure(context.project, start)
    modules = [module_of(resolve.module_name(context.project, path), path, resolve.parse(path)) for path in files]

    def is_module(name: str) -> bool:
        if name == "subject":
            return not subject.attribute
        return "." not in name or resolve.find_module(context.project, name) is not None

    for definition in reached(modules, predicate.path, harness.test.name):
        place = f"{_shown(context, definition.module.path)}:{definition.line} ({definition.name})"
        for name, why in _outside(definition):
            message = f"{harness.id} reaches {place}, which uses {name}: {why}"
            hint = "prove a pure function of numbers, and move this to its caller"
            yield error("PV192", harness.at("test"), message, hint)
            break
        for why in kept_state(definition, is_module):
            message = f"{harness.id} reaches {place}, which {why}"
            yield error("PV193", harness.at("test"), message, "return the new value instead of keeping it")
            break


def _outside(definition: Definition) -> Iterator[tuple[str, str]]:
    imported = definition.imported()
    for node in ast.walk(definition.node):
        if isinstance(node, ast.Name):
            source = imported.get(node.id, "")
            if source.partition(".")[0] in WHY:
                yield source, WHY[source.partition(".")[0]]
            elif node.id in BUILTINS and node.id not in definition.module.names:
                yield f"{node.id}()", "it acts outside its arguments"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from ((name, WHY[name.partition(".")[0]]) for name in names if name.partition(".")[0] in WHY)


def _shown(context: Context, path: Path) -> str:
    return path.relative_to(context.project.root).as_posix()
