"""Resolves the names in a contract to files, by path and syntax tree: nothing that a contract names is imported."""

import ast
import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pv import syntax
from pv.errors import PvError
from pv.model import Binding, Target
from pv.project import Project


class Unbound(PvError):
    """A name in a contract that leads nowhere. `kind` says how far it led: file, name or source."""

    def __init__(self, kind: str, message: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.known = known


@dataclass(frozen=True, slots=True)
class Function:
    """A function that a contract names, as its source declares it."""

    path: Path
    node: ast.FunctionDef | ast.AsyncFunctionDef

    @property
    def parameters(self) -> tuple[str, ...]:
        arguments = self.node.args
        return tuple(a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))

    @property
    def takes_any(self) -> bool:
        """Whether it takes keyword arguments of any name."""
        return self.node.args.kwarg is not None

    @property
    def is_lazy(self) -> bool:
        """Whether calling it does not run its body: a coroutine or a generator."""
        own = [node for part in self.node.body for node in _own_nodes(part)]
        return isinstance(self.node, ast.AsyncFunctionDef) or any(isinstance(n, ast.Yield | ast.YieldFrom) for n in own)


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what lies in it, without the functions that it defines."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _own_nodes(child)


def function(project: Project, binding: Binding) -> Function:
    """The function that `path.py::name` names. Raises Unbound."""
    path = _resolved(project.root / binding.file)
    if not path.is_relative_to(project.root):
        raise Unbound("file", f"{binding.file} lies outside the project {project.root}")
    if not _is_file(path):
        raise Unbound("file", f"there is no file {binding.file}", _python_files(path.parent, project.root))
    tree = parse(path)
    for name, node in syntax.functions(tree):
        if name == binding.name:
            return Function(path, node)
    raise Unbound("name", f"{binding.file} defines no {binding.name}", tuple(n for n, _ in syntax.functions(tree)))


def module_name(project: Project, path: Path) -> str:
    """The name by which the file is imported: its path below the first root that holds it."""
    for root in project.roots:
        if path.is_relative_to(root):
            parts = path.relative_to(root).with_suffix("").parts
            return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    raise Unbound("file", f"{path} lies below none of the roots in [tool.pv]")


def module_file(project: Project, module: str) -> Path:
    """The file that a module is loaded from: the first match below the roots. Raises Unbound."""
    found = _find_module(project, module)
    if found is not None:
        return found
    roots = ", ".join(_shown(root, project.root) for root in project.roots)
    raise Unbound("file", f"there is no module {module!r} below the roots in [tool.pv] ({roots})", _modules(project))


def _find_module(project: Project, module: str) -> Path | None:
    for root in project.roots:
        base = root.joinpath(*module.split("."))
        for path in (base / "__init__.py", base.with_suffix(".py")):
            if _is_file(path) and _resolved(path).is_relative_to(root):
                return path
    return None


def target_file(project: Project, target: Target) -> Path:
    """The file of a target's module, having made sure that it has the attribute. Raises Unbound."""
    path = module_file(project, target.module)
    if target.attribute:
        known = exported(path)
        first = target.attribute.split(".")[0]
        if target.attribute not in known and not (first in known and first not in syntax.names(parse(path))):
            raise Unbound("name", f"{target.module} defines no {target.attribute!r}", tuple(known))
    return path


def _resolved(path: Path) -> Path:
    """The path without links. A name that no file system can hold, or a link to itself, stays as it is."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


@cache
def _parse(path: Path, stamp: tuple[int, int]) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except syntax.UNREADABLE as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) else ""
        raise Unbound("source", f"{path.name} is no valid Python: {_why(error)}{line}") from error
    except OSError as error:
        raise Unbound("source", f"{path.name} cannot be read: {error.strerror}") from error


def _why(error: BaseException) -> str:
    return str(error.args[0]) if error.args else type(error).__name__


def source(path: Path) -> str:
    """The text of a Python file, in the encoding that it declares, with line ends as Python reads them."""
    return importlib.util.decode_source(path.read_bytes())


def parse(path: Path) -> ast.Module:
    """The syntax tree of a file. Raises Unbound when it is not Python."""
    stat = path.stat()
    return _parse(path, (stat.st_mtime_ns, stat.st_size))


def exported(path: Path) -> list[str]:
    """The names that a module defines or imports at its top."""
    stat = path.stat()
    return _exported(path, (stat.st_mtime_ns, stat.st_size))


@cache
def _exported(path: Path, stamp: tuple[int, int]) -> list[str]:
    tree = parse(path)
    imported = [
        alias.asname or alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    return syntax.names(tree) + imported


def modules(paths: Iterable[Path]) -> frozenset[str]:
    """The modules that the files import, wherever in them, by full dotted names, relative ones left out."""
    nodes = [node for path in paths for node in ast.walk(parse(path))]
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return frozenset(plain | {n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.module and not n.level})


def imports(path: Path, module: str) -> Iterator[str]:
    """The absolute dotted names that a module imports, wherever in it: packages, modules and the names in them."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield stem
            yield from (f"{stem}.{alias.name}" for alias in node.names)


def closure(project: Project, paths: list[Path]) -> tuple[frozenset[Path], frozenset[str]]:
    """The files of the project that `paths` import, directly or not (themselves included), and what else they import.

    A package's `__init__.py` counts for every module in it, since Python runs it.
    """
    files: set[Path] = set()
    foreign: set[str] = set()
    todo = list(paths)
    while todo:
        path = todo.pop()
        if path in files:
            continue
        files.add(path)
        module = module_name(project, path)
        for name in [*_parents(module), *imports(path, module)]:
            inside = _files_of(project, name)
            todo.extend(inside)
            if not inside and not _is_folder(project, name):
                foreign.add(name.split(".")[0])
    return frozenset(files), frozenset(foreign)


def _is_folder(project: Project, name: str) -> bool:
    """Whether `name` is a folder of modules below the roots, a package without `__init__.py`."""
    return any(root.joinpath(*name.split(".")).is_dir() for root in project.roots)


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _files_of(project: Project, name: str) -> list[Path]:
    """The files that importing `name` runs; the last part may be a name in a module rather than a module."""
    found = (_find_module(project, module) for module in [*_parents(name), name])
    return [path for path in found if path is not None]


def _shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def _python_files(folder: Path, root: Path) -> tuple[str, ...]:
    try:
        found = sorted(folder.glob("*.py"))
    except OSError:  # a name that is too long
        return ()
    return tuple(str(p.relative_to(root)) for p in found if p.is_relative_to(root))


def _modules(project: Project) -> tuple[str, ...]:
    found = []
    for root in project.roots:
        for path in sorted([*root.glob("*/*.py"), *root.glob("*.py")]):
            found.append(module_name(project, path))
    return tuple(found)
