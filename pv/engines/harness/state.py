"""Finds the state that a definition keeps between calls."""

import ast
from collections.abc import Callable, Iterator

from pv.engines.harness.modules import Definition

CACHES = {"cache", "lru_cache", "cached_property", "singledispatch"}
MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.Call)
MUTATORS = {
    *("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "add", "discard", "update"),
    *("setdefault", "popitem", "appendleft", "popleft", "write", "__setitem__", "__setattr__", "send"),
}


def kept_state(definition: Definition, is_module: Callable[[str], bool]) -> Iterator[str]:
    """Yield each state that it keeps, in words that follow "which".

    is_module: whether an imported name, or `subject`, is a module: a call of its function `add` changes nothing.
    """
    modules = {name for name, target in definition.imported.items() if is_module(target)}
    modules |= {"subject"} if is_module("subject") else set()
    for node in ast.walk(definition.node):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _kept_by(definition, node, modules)


def _kept_by(
    definition: Definition, function: ast.FunctionDef | ast.AsyncFunctionDef, modules: set[str]
) -> Iterator[str]:
    for decorator in function.decorator_list:
        word = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if word.rpartition(".")[2] in CACHES:
            yield f"keeps its results in a {word}"
    shared = (definition.module.names | set(definition.module.imports)) - _locals(function) | _defaults(function)
    shared |= {"subject"}  # the module under contract
    for node in ast.walk(function):
        if isinstance(node, ast.Global):
            yield f"assigns the global {node.names[0]!r}"
        for target in _changed(node):
            root = _root(target)
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if root in shared and not (called and isinstance(target, ast.Name) and root in modules):
                yield f"changes {ast.unparse(target)!r}, which outlives the call"


def _changed(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the objects that a statement or call changes in place."""
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
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _locals(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names that belong to one call: its arguments, and names bound in the body."""
    nodes = list(ast.walk(function))
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return bound | {node.arg for node in nodes if isinstance(node, ast.arg)}


def _defaults(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the arguments with a mutable default value, which all calls share."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args]
    pairs = list(zip(named[len(named) - len(arguments.defaults) :], arguments.defaults, strict=True))
    pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
    return {argument.arg for argument, default in pairs if isinstance(default, MUTABLE)}
