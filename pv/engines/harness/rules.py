"""Rules about harnesses: the box is valid, the predicate accepts its points, and what it reaches can be proved.

The names in a predicate are resolved, and those in what it reaches. Code that it may only reach through an object whose
class the source does not tell gives a notice.
"""

import ast
import contextlib
from collections.abc import Callable, Iterator
from itertools import islice

from pv.contract import bounds
from pv.contract.claims import Harness
from pv.contract.codes import Code, Stops
from pv.contract.finding import Finding, error, notice
from pv.engines.harness.modules import Definition, module_of
from pv.engines.harness.names import Names
from pv.engines.harness.reach import reached
from pv.engines.harness.state import kept_state
from pv.engines.rule import Context, rule
from pv.source import resolve
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
HINTS = {
    "PV192": "prove a pure function of numbers, and move this to its caller",
    "PV193": "return the new value instead of keeping it",
}
UNSURE = "the class of an object is not known here: annotate it; if this is called, prove a pure function of numbers"
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
    nodes = (n for d in reached(Names([module]), path, harness.test.name).all for n in ast.walk(d.node))
    if not any(isinstance(n, ast.Assert | ast.Raise) or (isinstance(n, ast.Return) and n.value) for n in nodes):
        message = f"{harness.id}: {harness.test} has no assert and returns nothing, so it cannot fail"
        yield error("PV194", harness.at("test"), message, "assert the claim, or return whether it holds")


def _impure(context: Context, harness: Harness) -> Iterator[Finding]:
    """Yield a finding for the first impure operation in each definition that it reaches."""
    assert harness.test is not None
    subject = context.subject or context.contract.subject_of(harness)
    predicate = resolve.function(context.project, harness.test)
    start = [predicate.path, resolve.target_file(context.project, subject)]
    files, _ = context.imports.closure(start)
    modules = [module_of(resolve.module_name(context.project, path), path, resolve.parse(path)) for path in files]

    def is_module(name: str) -> bool:
        if name == "subject":
            return not subject.attribute
        return "." not in name or resolve.find_module(context.project, name) is not None

    names = Names(modules, str(subject).replace(":", "."))
    reach = reached(names, predicate.path, harness.test.name)
    for definition in reach.sure:
        for code, why in _faults(definition, names, is_module):
            message = f"{harness.id} reaches {_place(context, definition)}, which {why}"
            yield error(code, harness.at("test"), message, HINTS[code])
    unsure = [(reached, fault) for reached in reach.maybe for fault in _faults(reached, names, is_module)]
    for definition, (code, why) in unsure[:1]:
        message = f"{harness.id} may reach {_place(context, definition)}, which {why}"
        yield notice(code, harness.at("test"), message, UNSURE)


def _faults(definition: Definition, names: Names, is_module: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Yield the first impure operation of a definition and the first state that it keeps, each with its code."""
    impure = (("PV192", f"uses {name}: {why}") for name, why in _outside(definition, names))
    kept = (("PV193", why) for why in kept_state(definition, is_module))
    yield from (*islice(impure, 1), *islice(kept, 1))


def _outside(definition: Definition, names: Names) -> Iterator[tuple[str, str]]:
    for node in ast.walk(definition.node):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names_used = (
                [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            )
            yield from ((name, WHY[name.partition(".")[0]]) for name in names_used if name.partition(".")[0] in WHY)
    for name in names.outside(definition):
        if name in BUILTINS:
            yield f"{name}()", "it acts outside its arguments"
        elif name.partition(".")[0] in WHY:
            yield name, WHY[name.partition(".")[0]]


def _place(context: Context, definition: Definition) -> str:
    path = definition.module.path.relative_to(context.project.root).as_posix()
    return f"{path}:{definition.line} ({definition.name})"
