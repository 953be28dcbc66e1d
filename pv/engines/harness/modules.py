"""Reads a file of the project as its definitions and its imports."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from pv.engines.harness.scopes import Scope, uses


@dataclass(frozen=True, slots=True)
class Module:
    """A file of the project, the names that it defines at its top, and the absolute target of each imported name.

    stars: the modules that it imports all names of.
    """

    name: str
    path: Path
    names: frozenset[str]
    imports: Mapping[str, str]
    stars: tuple[str, ...]
    definitions: tuple["Definition", ...]

    @property
    def package(self) -> list[str]:
        """Return the parts of the name of the package that relative imports start from."""
        return _package(self.name, self.path)


@dataclass(eq=False)
class Definition:
    """A function, a method, a class without its methods, or a variable of a module, under its last name."""

    name: str
    node: ast.AST
    line: int
    inner: tuple["Definition", ...] = ()
    """The definitions inside a class: code with an object of it may call them."""
    owner: "Definition | None" = None
    """The class of a method."""
    module: Module = field(init=False, repr=False)
    """The module that defines it, set when that is complete, since each refers to the other."""

    @cached_property
    def imported(self) -> Mapping[str, str]:
        """Return the targets of the names that are imported, in it or at the top of the file."""
        return {**self.module.imports, **_imports(ast.walk(self.node), self.module.package)}

    @cached_property
    def uses(self) -> tuple[tuple[ast.Name | ast.Attribute, Scope], ...]:
        """Return the names and attributes that it evaluates, each with the local names around it."""
        return tuple(uses(self.node, Scope()))


@cache
def module_of(name: str, path: Path, tree: ast.Module) -> Module:
    """Return a file as a module, with its definitions at every level.

    It is kept for a tree, and so is what its definitions use: many harnesses reach the same files.
    """
    definitions = tuple(_definitions(tree.body))
    top = {definition.name for definition in definitions if definition.owner is None}
    package = _package(name, path)
    stars = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.names[0].name == "*"]
    module = Module(
        name=name,
        path=path,
        names=frozenset(top),
        imports=_imports(ast.walk(tree), package),
        stars=tuple(_source(node, package) for node in stars),
        definitions=definitions,
    )
    for definition in definitions:
        definition.module = module
    return module


def _package(name: str, path: Path) -> list[str]:
    return name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]


def _definitions(body: Sequence[ast.stmt]) -> Iterator[Definition]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Definition(node.name, node, node.lineno)
        elif isinstance(node, ast.ClassDef):
            yield from _class(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (Definition(t.id, node, node.lineno) for t in targets if isinstance(t, ast.Name))
        for block in ("body", "orelse", "finalbody", "handlers"):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from _definitions(getattr(node, block, None) or [])


def _class(node: ast.ClassDef) -> Iterator[Definition]:
    statements: list[ast.stmt] = [p for p in node.body if not isinstance(p, ast.FunctionDef | ast.AsyncFunctionDef)]
    bare = ast.ClassDef(node.name, node.bases, node.keywords, statements, node.decorator_list)
    below = tuple(_definitions(node.body))
    inner = tuple(definition for definition in below if definition.owner is None)
    class_ = Definition(node.name, bare, node.lineno, inner)
    for definition in inner:
        definition.owner = class_
    yield class_
    yield from below


def _imports(nodes: Iterator[ast.AST], package: Sequence[str]) -> dict[str, str]:
    targets: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                targets[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            targets |= {alias.asname or alias.name: f"{_source(node, package)}.{alias.name}" for alias in node.names}
    return targets


def _source(node: ast.ImportFrom, package: Sequence[str]) -> str:
    """Return the absolute name of the module that a statement imports from."""
    base = package[: len(package) - node.level + 1] if node.level else []
    return ".".join([*base, *([node.module] if node.module else [])])
