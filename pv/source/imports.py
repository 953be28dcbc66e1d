"""Read import statements: the modules that files import, and the files and libraries that are imported recursively."""

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache, partial
from pathlib import Path

from pv.source import resolve, syntax
from pv.source.project import Project

Find = Callable[[str], Path | None]
"""A function from the name of a module to its file in the project."""


def modules(paths: Iterable[Path]) -> frozenset[str]:
    """Return the dotted names that files import: modules, and names in modules. Relative imports are left out."""
    imported: set[str] = set()
    for node in (node for path in paths for node in _statements(path, resolve.stamp(path))):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif node.module and not node.level:
            imported.update([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
    return frozenset(imported)


def names(path: Path, module: str) -> Iterator[str]:
    """Yield the absolute dotted names that a module imports, also in functions: modules, and names in modules.

    Args:
        path: The file of the module.
        module: Its dotted name, to resolve relative imports.
    """
    package = syntax.package_of(module, path)
    for node in _statements(path, resolve.stamp(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            yield (stem := syntax.imported_module(node, package))
            yield from (f"{stem}.{alias.name}" for alias in node.names)


@lru_cache(maxsize=4096)
def _statements(path: Path, _: tuple[int, int]) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Return the import statements of a file that may run: those below `if TYPE_CHECKING:` do not."""
    statements: list[ast.Import | ast.ImportFrom] = []
    todo: list[ast.AST] = [resolve.parse(path)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            statements.append(node)
        # Imports for the type checker alone do not run, so no result depends on them.
        elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            todo += node.orelse
        elif not isinstance(node, ast.expr):
            todo += ast.iter_child_nodes(node)
    return tuple(statements)


class Imports:
    """The imports of the files of a project. Every file is read once, so the files must not change meanwhile."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._find = cache(partial(resolve.find_module, project))
        # Whether a top-level name belongs to the project, even if the module that is imported from it is missing.
        self._in_project = cache(lambda top: self._find(top) is not None or _is_folder(project, top))
        self._imports_of = cache(self._read)

    def closure(self, paths: Iterable[Path]) -> tuple[frozenset[Path], frozenset[str]]:
        """Follow imports from some files to all files and libraries that the files import, directly or not.

        The `__init__.py` of a package belongs to every module in it, since Python runs it.

        Args:
            paths: Files of the project.

        Returns:
            The files of the project that are imported, directly or not, with `paths`; and the top-level names of the
            libraries that any of them imports.

        Raises:
            Unbound: A file is not Python, or is below no root.
        """
        # Breadth-first: `todo` holds the files that were reached in the last round and not read before.
        files: set[Path] = set()
        libraries: set[str] = set()
        todo = {*paths}
        while todo:
            files |= todo
            imported = [self._imports_of(path) for path in todo]
            libraries.update(*(libraries_ for _, libraries_ in imported))
            todo = {path for paths_, _ in imported for path in paths_} - files
        # A package with a file in the project is not a library, even if the module that is imported from it is missing.
        packages = {resolve.module_name(self._project, path).partition(".")[0] for path in files}
        return frozenset(files), frozenset(libraries - packages)

    def _read(self, path: Path) -> tuple[frozenset[Path], frozenset[str]]:
        """Return the files and the libraries that one file imports."""
        files: set[Path] = set()
        libraries: set[str] = set()
        module = resolve.module_name(self._project, path)
        for name in {*_parents(module), *names(path, module)}:
            top = name.partition(".")[0]
            paths = _files_of(self._find, name) if self._in_project(top) or self._find(name) is not None else []
            files.update(paths)
            if not paths and not (self._in_project(top) and _is_folder(self._project, name)):
                libraries.add(top)
        return frozenset(files), frozenset(libraries)


def closure(project: Project, paths: Iterable[Path]) -> tuple[frozenset[Path], frozenset[str]]:
    """Return the files and libraries that files import, directly or not; see `Imports.closure`."""
    return Imports(project).closure(paths)


def _is_folder(project: Project, name: str) -> bool:
    """Return whether a dotted name is a folder below a root, and so a package without `__init__.py`."""
    return any(root.joinpath(*name.split(".")).is_dir() for root in project.roots)


def _parents(module: str) -> list[str]:
    """Return the packages around a module, the outermost first."""
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _files_of(find: Find, name: str) -> list[Path]:
    """Return the files that importing `name` runs; its last part may be a name in a module rather than a module."""
    paths = map(find, [*_parents(name), name])
    return [path for path in paths if path is not None]
