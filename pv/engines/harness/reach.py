"""Finds the code that a function may reach, by name: an upper bound, since several definitions may share a name."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Node = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


@dataclass(frozen=True, slots=True)
class Module:
    """A file of the project, the names that it defines at its top, and the target of each imported name."""

    name: str
    path: Path
    names: frozenset[str]
    imports: Mapping[str, str]
    definitions: tuple["Definition", ...]


@dataclass(slots=True)
class Definition:
    """A function, a method, a class without its methods, or a variable of a module, under its last name."""

    name: str
    node: ast.AST
    line: int
    brings: tuple["Definition", ...] = ()
    """The definitions inside a class: code with an object of it may call them."""
    module: Module = field(init=False, repr=False)
    """The module that defines it, set when that is complete, since each refers to the other."""

    def imported(self) -> dict[str, str]:
        """Return the targets of the names that are imported, in it or at the top of the file."""
        return {**self.module.imports, **_imports(ast.walk(self.node))}

    def uses(self) -> set[str]:
        """Return the last part of every name that it uses."""
        nodes = list(ast.walk(self.node))
        words = {node.id for node in nodes if isinstance(node, ast.Name)}
        words |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        imports = self.imported()
        return words | {imports[word].rpartition(".")[2] for word in words if word in imports}


def module_of(name: str, path: Path, tree: ast.Module) -> Module:
    """Return a file as a module, with its definitions at every level."""
    found = tuple(_definitions(tree.body))
    top = {definition.name for definition in found}
    module = Module(name, path, frozenset(top), _imports(ast.walk(tree)), found)
    for definition in found:
        definition.module = module
    return module


def _definitions(body: Sequence[ast.stmt]) -> Iterator[Definition]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Definition(node.name, node, node.lineno)
        elif isinstance(node, ast.ClassDef):
            own: list[ast.stmt] = [p for p in node.body if not isinstance(p, ast.FunctionDef | ast.AsyncFunctionDef)]
            bare = ast.ClassDef(node.name, node.bases, node.keywords, own, node.decorator_list)
            inner = tuple(_definitions(node.body))
            yield Definition(node.name, bare, node.lineno, inner)
            yield from inner
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (Definition(t.id, node, node.lineno) for t in targets if isinstance(t, ast.Name))
        for block in ("body", "orelse", "finalbody", "handlers"):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from _definitions(getattr(node, block, None) or [])


def _imports(nodes: Iterator[ast.AST]) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = alias.name
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: f"{node.module or ''}.{alias.name}" for alias in node.names}
    return found


def reached(modules: Sequence[Module], path: Path, name: str) -> list[Definition]:
    """Return the definition `name` in the file `path`, and every definition that it may reach."""
    everything = [definition for module in modules for definition in module.definitions]
    by_name: dict[str, list[Definition]] = {}
    for definition in everything:
        by_name.setdefault(definition.name, []).append(definition)
    todo = [d for d in everything if d.module.path == path and d.name == name]
    found: dict[int, Definition] = {}
    while todo:
        definition = todo.pop()
        if id(definition) in found:
            continue
        found[id(definition)] = definition
        todo += definition.brings
        todo += [each for word in definition.uses() for each in by_name.get(word, ())]
    return sorted(found.values(), key=lambda d: (str(d.module.path), d.line))
