"""Finds the definition of a name across the files of a project, and checks calls of it against its parameters."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pv.contract.names import Target
from pv.source import resolve, syntax
from pv.source.project import Project

MAX_STEPS = 8
TRANSPARENT = {
    "staticmethod",
    "classmethod",
    "no_grad",
    "inference_mode",
    "enable_grad",
    "compile",
    "cache",
    "lru_cache",
}
"""Decorators that keep the parameters of a function."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a function as its callers pass them. Without the object that a method is called on."""

    positional: tuple[str, ...]
    positional_only: int
    keyword: tuple[str, ...]
    required: frozenset[str]
    any_positional: bool
    any_keyword: bool

    def problem(self, count: int, keywords: Sequence[str]) -> str:
        """Return why a call with `count` positional arguments and these keywords is refused; "" if it is not."""
        if count > len(self.positional) and not self.any_positional:
            return f"takes {len(self.positional)} positional arguments, got {count}"
        by_name = {*self.positional[self.positional_only :], *self.keyword}
        unknown = [name for name in keywords if name not in by_name]
        if unknown and not self.any_keyword:
            return f"has no parameter {unknown[0]!r}"
        given = set(self.positional[:count])
        twice = [name for name in keywords if name in given]
        if twice:
            return f"gets multiple values for {twice[0]!r}"
        missing = [name for name in (*self.positional, *self.keyword) if name in self.required - given - {*keywords}]
        return f"is missing {', '.join(map(repr, missing))}" if missing else ""


def parameters(project: Project, target: Target) -> Parameters | None:
    """Return the parameters with which a function, method or class is called; None if its source does not tell."""
    found = definition(project, target)
    if isinstance(found, ast.ClassDef):
        inner = dict(syntax.walk(found.body))
        init = inner.get("__init__")
        # Without an own __init__, a base class, a decorator or a metaclass decides.
        return _parameters(init, method=True) if isinstance(init, Function) and not found.decorator_list else None
    owner = target.attribute.rpartition(".")[0]
    method = bool(owner) and isinstance(definition(project, Target(target.module, owner)), ast.ClassDef)
    return _parameters(found, method=method) if isinstance(found, Function) else None


def definition(project: Project, target: Target) -> syntax.Definition | None:
    """Return the definition of a name of a module, also where the module imports it; None if it is not found."""
    target = home(project, target)
    path = resolve.find_module(project, target.module)
    found = _defined(resolve.parse(path), target) if path is not None else []
    return found[0] if len(found) == 1 else None


def home(project: Project, target: Target) -> Target:
    """Return the target where a name is defined that modules import from each other; the last one that is known."""
    for _ in range(MAX_STEPS):
        path = resolve.find_module(project, target.module)
        tree = resolve.parse(path) if path is not None else None
        if path is None or tree is None or _defined(tree, target):
            break
        onward = _imported(project, tree, target, is_package=path.name == "__init__.py")
        if onward is None or resolve.find_module(project, onward.module) is None:
            break
        target = onward
    return target


def _defined(tree: ast.Module, target: Target) -> list[syntax.Definition]:
    return [node for name, node in syntax.walk(tree.body) if name == target.attribute]


def returns_nothing(function: ast.FunctionDef) -> bool:
    """Return whether the source of a function shows that it can only return None.

    An unknown decorator may change what is returned; a stub, and a body that ends with `raise`, are for others to fill.
    """
    if not {name_of(each) for each in function.decorator_list} <= TRANSPARENT:
        return False
    if isinstance(function.body[-1], ast.Raise) or all(map(_is_empty, function.body)):
        return False
    own = list(_own(function.body))
    values = [node.value for node in own if isinstance(node, ast.Return) and node.value is not None]
    lazy = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own)
    return not lazy and all(isinstance(value, ast.Constant) and value.value is None for value in values)


def _is_empty(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _own(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of a body, without those of the functions and classes that it defines."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield from _own(ast.iter_child_nodes(node))


def _imported(project: Project, tree: ast.Module, target: Target, *, is_package: bool) -> Target | None:
    """Return the target that a name of a module is imported from, also by `*` from the module that defines it."""
    first, _, rest = target.attribute.partition(".")
    package = target.module.split(".") if is_package else target.module.split(".")[:-1]
    for node in syntax.imports(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        base = package[: len(package) - node.level + 1] if node.level else []
        module = ".".join([*base, *([node.module] if node.module else [])])
        same = Target(module, target.attribute)
        public = node.names[0].name == "*" and not first.startswith("_")
        path = resolve.find_module(project, module) if public else None
        if path is not None and _defined(resolve.parse(path), same):
            return same
        for alias in node.names:
            if (alias.asname or alias.name) == first:
                return Target(module, ".".join(filter(None, [alias.name, rest])))
    return None


def _parameters(node: Function, *, method: bool) -> Parameters | None:
    names = {name_of(each) for each in node.decorator_list}
    if not names <= TRANSPARENT:
        return None
    arguments = node.args
    skipped = int(method and "staticmethod" not in names)
    positional = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    defaults = len(arguments.defaults)
    required = {*positional[: len(positional) - defaults]}
    required |= {a.arg for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is None}
    return Parameters(
        positional=tuple(positional[skipped:]),
        positional_only=max(0, len(arguments.posonlyargs) - skipped),
        keyword=tuple(each.arg for each in arguments.kwonlyargs),
        required=frozenset(required - {*positional[:skipped]}),
        any_positional=arguments.vararg is not None,
        any_keyword=arguments.kwarg is not None,
    )


def name_of(decorator: ast.expr) -> str:
    """Return the last name of a decorator, such as `given` of `hypothesis.given(...)`."""
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator).rpartition(".")[2]
