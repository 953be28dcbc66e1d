"""Resolves the names in a contract to files, by path and syntax tree: nothing that a contract names is imported."""

import ast
import importlib.util
import os
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from pv.contract.load import shown_path
from pv.contract.names import Binding, Target
from pv.errors import PvError
from pv.source import match, syntax
from pv.source.project import Project, is_shipped, suite_homes


class Unbound(PvError):
    """A name in a contract that cannot be resolved. `kind` is the step that failed: file, name or source."""

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
        """Return whether it takes keyword arguments of any name."""
        return self.node.args.kwarg is not None

    @property
    def is_lazy(self) -> bool:
        """Return whether calling it does not run its body: a coroutine or a generator."""
        if isinstance(self.node, ast.AsyncFunctionDef):
            return True
        return "yield" in source(self.path) and syntax.yields(self.node.body)


def function(project: Project, binding: Binding) -> Function:
    """Return the function that `path.py::name` names. Raise Unbound."""
    path = _resolved(project.root / binding.file)
    if not _is_file(path):
        shipped = (_resolved(home / binding.file) for home, _ in suite_homes())
        path = next((file for file in shipped if is_shipped(file) and _is_file(file)), path)
    if not (path.is_relative_to(project.root) or is_shipped(path)):
        raise Unbound("file", f"{binding.file} is outside the project {project.root}")
    if not _is_file(path):
        raise Unbound("file", f"no such file: {binding.file}", _python_files(path.parent, project.root))
    known = _functions(path, stamp(path))
    if binding.name not in known:
        raise Unbound("name", f"unknown name {binding.name!r} in {binding.file}", tuple(known))
    return Function(path, known[binding.name])


@lru_cache(maxsize=256)
def _functions(path: Path, _: tuple[int, int]) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the functions of a file by name; of several with one name the first."""
    found: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
    for name, node in syntax.functions(parse(path)):
        found.setdefault(name, node)
    return found


def module_name(project: Project, path: Path) -> str:
    """Return the name by which the file is imported: its path below the first root that holds it."""
    if (name := _module_name(project.roots, path)) is None:
        raise Unbound("file", f"{path} is outside the roots in [tool.pv]")
    return name


@lru_cache(maxsize=4096)
def _module_name(roots: tuple[Path, ...], path: Path) -> str | None:
    homes = [home for home, folder in suite_homes() if path.is_relative_to(folder)]
    for root in (*roots, *homes):
        if path.is_relative_to(root):
            parts = path.relative_to(root).with_suffix("").parts
            return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return None


def module_file(project: Project, module: str) -> Path:
    """Return the file that a module is loaded from: the first match below the roots. Raise Unbound."""
    found = find_module(project, module)
    if found is not None:
        return found
    roots = ", ".join(_relative_path(root, project.root) for root in project.roots)
    raise Unbound("file", f"unknown module {module!r} below the roots in [tool.pv] ({roots})", _modules(project))


def find_module(project: Project, module: str) -> Path | None:
    """Return the file that a module is loaded from: the first match below the roots, if there is one."""
    inside = module.replace(".", os.sep)
    for root in project.roots:
        for name in (f"{root}{os.sep}{inside}{os.sep}__init__.py", f"{root}{os.sep}{inside}.py"):
            is_file = os.path.isfile(name)  # noqa: PTH113  (Path.is_file raises for a name that is too long)
            if is_file and os.path.realpath(name).startswith(os.path.join(root, "")):  # noqa: PTH118  (Path is slow)
                return Path(name)
    return _shipped_module(inside)


def _shipped_module(inside: str) -> Path | None:
    """Return the file of a module of a conformance suite, if it is one."""
    for home, folder in suite_homes():
        if inside.startswith(
            str(folder.relative_to(home))
        ):  # before any look at the disk: this is asked of every import
            files = (home / inside / "__init__.py", home / f"{inside}.py")
            return next((path for path in files if path.is_file()), None)
    return None


def target_file(project: Project, target: Target) -> Path:
    """Return the file of a target's module. Raise Unbound if the module or the attribute does not exist."""
    path = module_file(project, target.module)
    if target.attribute:
        known = exported(path)
        first = target.attribute.split(".")[0]
        if target.attribute not in known and not (first in known and first not in syntax.names(parse(path))):
            raise Unbound("name", f"unknown name {target.attribute!r} in {target.module}", tuple(known))
    return path


def _resolved(path: Path) -> Path:
    """Return the path without links. A name that no file system can hold, or a link to itself, stays as it is."""
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
        return match.read(source(path)).tree
    except syntax.UNREADABLE as error:
        raise Unbound("source", f"{_place(path, error)} is not valid Python: {_why(error)}") from error
    except OSError as error:
        raise Unbound("source", f"{path.name} cannot be read: {error.strerror}") from error


def _place(path: Path, error: BaseException) -> str:
    """Return the path, with line and column where the error has them, such as `src/bpe.py:44:9`."""
    place = str(shown_path(path))
    if not isinstance(error, SyntaxError) or error.lineno is None:
        return place
    return f"{place}:{error.lineno}:{error.offset}" if error.offset else f"{place}:{error.lineno}"


def _why(error: BaseException) -> str:
    return str(error.args[0]) if error.args else type(error).__name__


def source(path: Path) -> str:
    """Return the text of a Python file, in the encoding that it declares, with line ends as Python reads them."""
    return _source(path, stamp(path))


@lru_cache(maxsize=256)
def _source(path: Path, _: tuple[int, int]) -> str:
    return importlib.util.decode_source(path.read_bytes())


def stamp(path: Path) -> tuple[int, int]:
    """Return what tells a file from a later version of it, so that what was read of it is remembered."""
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


def parse(path: Path) -> ast.Module:
    """Return the syntax tree of a file. Raise Unbound when it is not Python."""
    return _parse(path, stamp(path))


def exported(path: Path) -> list[str]:
    """Return the names that a module defines or imports at its top."""
    return _exported(path, stamp(path))


@cache
def _exported(path: Path, _: tuple[int, int]) -> list[str]:
    tree = parse(path)
    imported = [alias.asname or alias.name.split(".")[0] for node in syntax.imports(tree) for alias in node.names]
    return syntax.names(tree) + imported


def _relative_path(path: Path, root: Path) -> str:
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
