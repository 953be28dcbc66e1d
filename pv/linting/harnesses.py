"""Rules about harnesses: the box is one, the predicate takes its points, and all that it reaches is fit to be proved.

What a predicate reaches is read off by name: every definition in the project's files behind it and its subject whose
name it uses, and so on. That is more than it can call, so code is refused too often rather than too seldom.
"""

import ast
import contextlib
from collections.abc import Iterator
from pathlib import Path

from pv import binding, bounds
from pv.binding import Unbound
from pv.linting.context import Context, error
from pv.linting.reach import Definition, module_of, reached
from pv.linting.state import kept_state
from pv.model import Finding, Harness

NO_SOLVER = {"torch", "numpy", "scipy", "jax", "tensorflow", "pandas", "ctypes"}
FILES = {"io", "os", "pathlib", "shutil", "tempfile", "glob", "fileinput", "mmap", "sqlite3", "logging"}
CLOCK = {"time", "datetime", "calendar"}
CHANCE = {"random", "secrets", "uuid", "hypothesis"}
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
    **dict.fromkeys(NO_SOLVER, "no solver sees through it"),
    **dict.fromkeys(FILES, "it reads or writes what is not an argument"),
    **dict.fromkeys(CLOCK, "the clock is no argument"),
    **dict.fromkeys(CHANCE, "chance is no argument"),
    **dict.fromkeys(PYTHON, "the interpreter's own state is no argument"),
    **dict.fromkeys(PROCESSES, "another process or thread is beyond a proof"),
}
BUILTINS = {"open", "input", "print", "exec", "eval", "__import__", "breakpoint"}


def boxes(context: Context) -> Iterator[Finding]:
    for harness in context.contract.harnesses:
        for name, text in harness.bounds.items():
            if bounds.bound(text).empty:
                hint = "the lower end comes first; as it is, no point could be tried"
                yield error("PV190", harness.at(f"bounds/{name}"), f"{harness.id}: {name}: {text} admits nothing", hint)
        try:
            bounds.precondition(harness.requires, tuple(harness.bounds))
        except ValueError as problem:
            hint = f"compare the bounds {', '.join(harness.bounds)} with numbers and each other"
            yield error("PV191", harness.at("requires"), f"{harness.id}: {problem}", hint)


def predicates(context: Context) -> Iterator[Finding]:
    for harness in context.contract.harnesses:
        with contextlib.suppress(Unbound, LookupError):  # these have findings of their own
            yield from _arguments(context, harness)
            yield from _toothless(context, harness)
            yield from _impure(context, harness)


def _arguments(context: Context, harness: Harness) -> Iterator[Finding]:
    assert harness.test is not None
    arguments = binding.function(context.project, harness.test).node.args
    named = [*arguments.posonlyargs, *arguments.args]
    optional = [a.arg for a in named[len(named) - len(arguments.defaults) :]]
    optional += [a.arg for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default]
    for argument in (*named, *arguments.kwonlyargs):
        if argument.arg not in ("subject", *harness.bounds, *optional):
            message = f"{harness.id}: {harness.test} takes `{argument.arg}`, which has no bound"
            yield error("PV112", harness.at("test"), message, f"give `bounds` one, such as {argument.arg}: 0..8")


def _toothless(context: Context, harness: Harness) -> Iterator[Finding]:
    """A predicate that asserts nothing and answers nothing holds of every code that does not raise."""
    assert harness.test is not None
    path = binding.function(context.project, harness.test).path
    module = module_of(binding.module_name(context.project, path), path, binding.parse(path))
    nodes = (n for d in reached([module], path, harness.test.name) for n in ast.walk(d.node))
    if not any(isinstance(n, ast.Assert | ast.Raise) or (isinstance(n, ast.Return) and n.value) for n in nodes):
        message = f"{harness.id}: {harness.test} asserts nothing and answers nothing: no point could refute it"
        yield error("PV194", harness.at("test"), message, "assert what has to hold, or return whether it does")


def _impure(context: Context, harness: Harness) -> Iterator[Finding]:
    """The first thing in each definition that it reaches which a proof could not account for."""
    assert harness.test is not None
    subject = context.subject or context.contract.subject_of(harness)
    predicate = binding.function(context.project, harness.test)
    start = [predicate.path, binding.target_file(context.project, subject)]
    files, _ = binding.closure(context.project, start)
    modules = [module_of(binding.module_name(context.project, path), path, binding.parse(path)) for path in files]
    for definition in reached(modules, predicate.path, harness.test.name):
        place = f"{_shown(context, definition.module.path)}:{definition.line} ({definition.name})"
        for name, why in _outside(definition):
            message = f"{harness.id} reaches {place}, which uses {name}: {why}"
            hint = "prove a pure function of numbers, and leave this to its caller"
            yield error("PV192", harness.at("test"), message, hint)
            break
        for why in kept_state(definition):
            message = f"{harness.id} reaches {place}, which {why}"
            yield error("PV193", harness.at("test"), message, "return what is new instead of keeping it")
            break


def _outside(definition: Definition) -> Iterator[tuple[str, str]]:
    imported = definition.imported()
    for node in ast.walk(definition.node):
        if isinstance(node, ast.Name):
            source = imported.get(node.id, "")
            if source.partition(".")[0] in WHY:
                yield source, WHY[source.partition(".")[0]]
            elif node.id in BUILTINS and node.id not in definition.module.names:
                yield f"{node.id}()", "it acts on the world outside its arguments"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from ((name, WHY[name.partition(".")[0]]) for name in names if name.partition(".")[0] in WHY)


def _shown(context: Context, path: Path) -> str:
    return path.relative_to(context.project.root).as_posix()
