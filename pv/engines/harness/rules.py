"""Lint rules of harnesses: a predicate and the code that it reaches keep no state and have no side effects.

A fault in code that the predicate certainly reaches is an error. A fault in code that it may reach, through an object
of unknown class, is a notice.
"""

import ast
import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pv.contract import harness_bounds
from pv.contract.codes import Code, Stops
from pv.contract.finding import Finding, error, notice
from pv.contract.model import Harness
from pv.engines.harness.names import Definition, Names, module_of
from pv.engines.rule import Context, rule
from pv.source import resolve, syntax
from pv.source.resolve import Unbound


@dataclass(frozen=True, slots=True)
class Reach:
    """The definitions that a function certainly reaches, and those that it may reach through an unknown object."""

    certain: tuple[Definition, ...]
    possible: tuple[Definition, ...]


def reach_of(names: Names, path: Path, name: str) -> Reach:
    """Return the definitions that the function `name` of the file `path` reaches, in source order."""
    certain = {*_certain(names, path, name)}
    return Reach(_in_order(certain), _in_order({*_possible(names, certain)} - certain))


def reachable(names: Names, path: Path, name: str) -> Iterator[Definition]:
    """Yield the definitions that the function `name` of the file `path` certainly or possibly reaches.

    Definitions are computed lazily, so that a caller who searches for one can stop early. Definitions that are
    certainly reached come first, and are yielded a second time among the possible ones.
    """
    certain = []
    for definition in _certain(names, path, name):
        certain.append(definition)
        yield definition
    yield from _possible(names, certain)


def _certain(names: Names, path: Path, name: str) -> Iterator[Definition]:
    """Yield the definitions that the function `name` of the file `path` certainly reaches."""
    start = [d for m in names.modules if m.path == path for d in m.definitions if d.name == name and d.owner is None]
    return _closure(start, names.references)


def _possible(names: Names, certain: Iterable[Definition]) -> Iterator[Definition]:
    """Yield the definitions in `certain`, and all definitions that these may reach."""
    return _closure(certain, lambda definition: [*names.references(definition), *names.possible_references(definition)])


def _closure(start: Iterable[Definition], refers: Callable[[Definition], Iterable[Definition]]) -> Iterator[Definition]:
    """Yield the definitions that are reachable from `start` by references, each once."""
    # Depth-first search; definitions are compared by identity.
    reached: set[Definition] = set()
    todo = list(start)
    while todo:
        definition = todo.pop()
        if definition not in reached:
            reached.add(definition)
            yield definition
            todo += refers(definition)


def _in_order(definitions: Iterable[Definition]) -> tuple[Definition, ...]:
    return tuple(sorted(definitions, key=lambda d: (str(d.module.path), d.line)))


# Decorators that store results, and expressions whose value is a mutable object.
CACHES = {"cache", "lru_cache", "cached_property", "singledispatch"}
MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.Call)
# Methods that change their object. They are compared by name alone, since the class of the object is unknown.
MUTATORS = {
    *("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "add", "discard", "update"),
    *("setdefault", "popitem", "appendleft", "popleft", "write", "__setitem__", "__setattr__", "send"),
}


def find_kept_state(definition: Definition, is_module: Callable[[str], bool]) -> Iterator[str]:
    """Describe each state that a definition keeps between calls, such as "assigns the global 'total'".

    Args:
        definition: The definition.
        is_module: Returns whether an imported name, or `subject`, is a module. `NAME.add(x)` changes an object unless
            `NAME` is a module.
    """
    modules = {name for name, target in definition.imported.items() if is_module(target)}
    modules |= {"subject"} if is_module("subject") else set()
    for node in ast.walk(definition.node):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _state_of_function(definition, node, modules)


def _state_of_function(
    definition: Definition, function: ast.FunctionDef | ast.AsyncFunctionDef, modules: set[str]
) -> Iterator[str]:
    """Describe each state that one function keeps between calls: cached results, globals, changed shared objects."""
    for decorator in function.decorator_list:
        if syntax.name_of(decorator) in CACHES:
            yield f"keeps its results in a {ast.unparse(decorator).partition('(')[0]}"
    # Names whose objects are shared between calls: names of the module, imports, and parameters with mutable defaults.
    shared = (definition.module.names | set(definition.module.imports)) - _local_names(function)
    shared |= _mutable_defaults(function) | {"subject"}  # the parameter for the module under contract
    for node in ast.walk(function):
        if isinstance(node, ast.Global):
            yield f"assigns the global {node.names[0]!r}"
        for target in _changed_objects(node):
            root = _root(target)
            is_method_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            # `math.remove(x)` or `subject.add(1)` calls a function of a module; it does not change the module.
            if root in shared and not (is_method_call and isinstance(target, ast.Name) and root in modules):
                yield f"changes {ast.unparse(target)!r}, an object that outlives the call"


def _changed_objects(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions of the objects that a statement or call changes in place."""
    if isinstance(node, ast.Assign | ast.Delete):
        yield from (target for target in node.targets if not isinstance(target, ast.Name))
    elif isinstance(node, ast.AugAssign | ast.AnnAssign) and not isinstance(node.target, ast.Name):
        yield node.target
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            yield node.func.value
        if isinstance(node.func, ast.Name) and node.func.id in ("next", "setattr", "delattr") and node.args:
            yield node.args[0]


def _root(node: ast.expr) -> str:
    """Return the name at the start of an expression: `cache` for `cache[key].items`; "" if there is none."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _local_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the local names of a function: its parameters, and the names bound in its body."""
    nodes = list(ast.walk(function))
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return bound | {node.arg for node in nodes if isinstance(node, ast.arg)}


def _mutable_defaults(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the parameters with a mutable default value, which all calls share."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    # `ast` lists defaults for the last positional parameters only, but has an entry for every keyword-only parameter.
    pairs = list(zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True))
    pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
    return {argument.arg for argument, default in pairs if isinstance(default, MUTABLE)}


# Packages whose code a solver cannot follow, and modules with effects outside of the call.
NO_SOLVER = {"torch", "numpy", "scipy", "jax", "tensorflow", "pandas", "ctypes"}
FILES = {"io", "os", "pathlib", "shutil", "tempfile", "glob", "fileinput", "mmap", "sqlite3", "logging"}
CLOCK = {"time", "datetime", "calendar"}
RANDOMNESS = {"random", "secrets", "uuid", "hypothesis"}
PROCESSES = {
    *("subprocess", "multiprocessing", "threading", "concurrent", "asyncio", "signal", "socket", "urllib", "http")
}
INTERPRETER = {"sys", "importlib", "builtins", "gc", "inspect", "weakref"}
IMPURE = {
    **dict.fromkeys(NO_SOLVER, "no solver can follow it"),
    **dict.fromkeys(FILES, "it reads or writes files"),
    **dict.fromkeys(CLOCK, "its value depends on the clock"),
    **dict.fromkeys(RANDOMNESS, "its value is random"),
    **dict.fromkeys(INTERPRETER, "its value depends on the interpreter's state"),
    **dict.fromkeys(PROCESSES, "a proof covers no other process or thread"),
}
"""The reason why a harness may not use a module, by the top-level package of the module."""
HINTS = {
    "PV192": "prove a pure function of numbers, and move this to its caller",
    "PV193": "return the new value instead of keeping it",
}
UNSURE = "the class of an object is unknown: annotate the object, or prove a pure function of numbers instead"
BUILTINS = {"open", "input", "print", "exec", "eval", "__import__", "breakpoint"}
"""Builtin functions with effects outside of their arguments."""


@rule(
    Code("PV190", "a bound of a harness admits no value", Stops.NOTHING),
    Code("PV191", "`requires` of a harness is not an expression over its bounds"),
)
def boxes(context: Context) -> Iterator[Finding]:
    """Check that the bounds of harnesses admit values, and that `requires` is an expression over the bounds."""
    for harness in context.contract.harnesses:
        bounds = {name: harness_bounds.parse_bound(text) for name, text in harness.bounds.items()}
        for name, bound in bounds.items():
            if bound.empty:
                message = f"{harness.id}: {name} {harness.bounds[name]} admits no value"
                yield error("PV190", harness.at(f"bounds/{name}"), message, "write the lower end first")
        try:
            harness_bounds.parse_condition(harness.requires, bounds)
        except ValueError as problem:
            hint = f"compare the bounds {', '.join(harness.bounds)} with numbers or each other"
            yield error("PV191", harness.at("requires"), f"{harness.id}: {problem}", hint)


@rule(
    Code("PV192", "a harness reaches what no proof can follow: torch, files, the clock, randomness, other processes"),
    Code("PV193", "a harness keeps state between calls, so a proof of one call says nothing about the next"),
    Code("PV194", "a predicate that has no assert and returns nothing, so it cannot fail"),
)
def predicates(context: Context) -> Iterator[Finding]:
    """Check that predicates can fail, and reach only pure code."""
    for harness in context.contract.harnesses:
        with contextlib.suppress(Unbound, LookupError):  # other rules report names that cannot be resolved
            yield from _unbounded_parameters(context, harness)
            yield from _cannot_fail(context, harness)
            yield from _impure(context, harness)


def _unbounded_parameters(context: Context, harness: Harness) -> Iterator[Finding]:
    """Yield a finding for each required parameter of the predicate that has no bound."""
    assert harness.test is not None
    for name in syntax.required_parameters(resolve.function(context.project, harness.test).node):
        if name not in ("subject", *harness.bounds):
            message = f"{harness.id}: {harness.test} has the parameter `{name}`, which has no bound"
            yield error("PV112", harness.at("test"), message, f"add it to `bounds`, for example {name}: 0..8")


def _cannot_fail(context: Context, harness: Harness) -> Iterator[Finding]:
    """Yield a finding if neither a predicate nor a function of its file that it may reach can fail or return a value.

    Only the statements `assert`, `raise` and `return` with a value count.
    """
    assert harness.test is not None
    path = resolve.function(context.project, harness.test).path
    module = module_of(resolve.module_name(context.project, path), path, resolve.parse(path))
    nodes = (n for d in reachable(Names([module]), path, harness.test.name) for n in ast.walk(d.node))
    if not any(isinstance(n, ast.Assert | ast.Raise) or (isinstance(n, ast.Return) and n.value) for n in nodes):
        message = f"{harness.id}: {harness.test} has no assert and returns nothing, so it cannot fail"
        yield error("PV194", harness.at("test"), message, "assert the claim, or return whether it holds")


def _impure(context: Context, harness: Harness) -> Iterator[Finding]:
    """Yield findings for the first impure operation and the first kept state of each definition that is reached."""
    assert harness.test is not None
    subject = context.subject or context.contract.subject_of(harness)
    predicate = resolve.function(context.project, harness.test)
    start = [predicate.path, resolve.target_file(context.project, subject)]
    files, _ = context.imports.closure(start)
    modules = [module_of(resolve.module_name(context.project, path), path, resolve.parse(path)) for path in files]

    def is_module(name: str) -> bool:
        if name == "subject":
            return not subject.attribute
        # A name without a dot comes from `import name`.
        return "." not in name or resolve.find_module(context.project, name) is not None

    names = Names(modules, str(subject).replace(":", "."))
    reach = reach_of(names, predicate.path, harness.test.name)
    for definition in reach.certain:
        for code, fault in _first_faults(definition, names, is_module):
            message = f"{harness.id} reaches {_describe_location(context, definition)}, which {fault}"
            yield error(code, harness.at("test"), message, HINTS[code])
    # One notice is enough, since the predicate may reach none of these definitions.
    possible = ((d, c, fault) for d in reach.possible for c, fault in _first_faults(d, names, is_module))
    for definition, code, fault in islice(possible, 1):
        message = f"{harness.id} may reach {_describe_location(context, definition)}, which {fault}"
        yield notice(code, harness.at("test"), message, UNSURE)


def _first_faults(definition: Definition, names: Names, is_module: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Yield lint code and description of a definition's first impure operation, and of the first state it keeps."""
    impure = (("PV192", f"uses {name}: {reason}") for name, reason in _impure_names(definition, names))
    states = (("PV193", state) for state in find_kept_state(definition, is_module))
    yield from (*islice(impure, 1), *islice(states, 1))


def _impure_names(definition: Definition, names: Names) -> Iterator[tuple[str, str]]:
    """Yield the names that have effects outside of the call or that a solver cannot follow, each with the reason."""
    for node in ast.walk(definition.node):
        if isinstance(node, ast.Import | ast.ImportFrom):
            aliases = [alias.name for alias in node.names]
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else aliases
            yield from ((name, IMPURE[top]) for name in modules if (top := name.partition(".")[0]) in IMPURE)
    for name in names.external_names(definition):
        if name in BUILTINS:
            yield f"{name}()", "it has effects outside of its arguments"
        elif (top := name.partition(".")[0]) in IMPURE:
            yield name, IMPURE[top]


def _describe_location(context: Context, definition: Definition) -> str:
    """Return the file, line and name of a definition, for messages."""
    path = definition.module.path.relative_to(context.project.root).as_posix()
    return f"{path}:{definition.line} ({definition.name})"
