"""Reads which files and libraries code consists of, from the import statements in it."""

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache, partial
from pathlib import Path

from pv.source import resolve
from pv.source.project import Project

Find = Callable[[str], Path | None]


def modules(paths: Iterable[Path]) -> frozenset[str]:
    """Return what the files import, modules and names in them, by full dotted names, relative ones left out."""
    found: set[str] = set()
    for node in (node for path in paths for node in _statements(path, resolve.stamp(path))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif node.module and not node.level:
            found.update([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
    return frozenset(found)


def names(path: Path, module: str) -> Iterator[str]:
    """Yield the absolute dotted names that a module imports, wherever in it: packages, modules and names in them."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in _statements(path, resolve.stamp(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield stem
            yield from (f"{stem}.{alias.name}" for alias in node.names)


@lru_cache(maxsize=4096)
def _statements(path: Path, _: tuple[int, int]) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Return the import statements of a file that may run, so without the bodies of `if TYPE_CHECKING:`."""
    found: list[ast.Import | ast.ImportFrom] = []
    todo: list[ast.AST] = [resolve.parse(path)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            todo += node.orelse
        elif not isinstance(node, ast.expr):
            todo += ast.iter_child_nodes(node)
    return tuple(found)


class Imports:
    """What each file of a project imports, read once. The files must not change meanwhile."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._find = cache(partial(resolve.find_module, project))
        self._inside = cache(lambda top: self._find(top) is not None or _is_folder(project, top))
        self._of = cache(self._read)

    def closure(self, paths: Iterable[Path]) -> tuple[frozenset[Path], frozenset[str]]:
        """Return the project's files that `paths` import, directly or not, with `paths`, and the libraries they import.

        A package's `__init__.py` counts for every module in it, since Python runs it. A package of which the project
        has a file is not a library, also where it lacks a module that is imported from it.
        """
        files: set[Path] = set()
        foreign: set[str] = set()
        todo = {*paths}
        while todo:
            files |= todo
            read = [self._of(path) for path in todo]
            foreign.update(*(libraries for _, libraries in read))
            todo = {path for found, _ in read for path in found} - files
        own = {resolve.module_name(self._project, path).partition(".")[0] for path in files}
        return frozenset(files), frozenset(foreign - own)

    def _read(self, path: Path) -> tuple[frozenset[Path], frozenset[str]]:
        """Return the files and the libraries that one file imports."""
        files: set[Path] = set()
        foreign: set[str] = set()
        module = resolve.module_name(self._project, path)
        for name in {*_parents(module), *names(path, module)}:
            top = name.partition(".")[0]
            found = _files_of(self._find, name) if self._inside(top) or self._find(name) is not None else []
            files.update(found)
            if not found and not (self._inside(top) and _is_folder(self._project, name)):
                foreign.add(top)
        return frozenset(files), frozenset(foreign)


def closure(project: Project, paths: Iterable[Path]) -> tuple[frozenset[Path], frozenset[str]]:
    """Return what files import; see `Imports.closure`."""
    return Imports(project).closure(paths)


def _is_folder(project: Project, name: str) -> bool:
    """Return whether `name` is a folder of modules below the roots, a package without `__init__.py`."""
    return any(root.joinpath(*name.split(".")).is_dir() for root in project.roots)


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _files_of(find: Find, name: str) -> list[Path]:
    """Return the files that importing `name` runs; its last part may be a name in a module rather than a module."""
    found = map(find, [*_parents(name), name])
    return [path for path in found if path is not None]
