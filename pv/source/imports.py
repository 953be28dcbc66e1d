"""Read import statements: the modules that files import, directly and through other files."""

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache, partial
from pathlib import Path

from pv.source import resolve, syntax
from pv.source.project import Project

Find = Callable[[str], Path | None]
"""Returns the file of a module in the project by the name of the module; None if there is none."""


def modules(paths: Iterable[Path]) -> frozenset[str]:
    """Return the dotted names that files import: modules, and names in modules. Relative imports are omitted."""
    imported: set[str] = set()
    for node in (node for path in paths for node in _statements(path, resolve.stamp(path))):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif node.module and not node.level:
            imported.update([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
    return frozenset(imported)


def names(path: Path, module: str) -> Iterator[str]:
    """Yield the absolute dotted names that a module imports: modules, and names in modules.

    Imports in functions are included.

    Args:
        path: The file of the module.
        module: The dotted name of the module, from which relative imports are resolved.
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
    """Return the import statements of a file that may run."""
    statements: list[ast.Import | ast.ImportFrom] = []
    todo: list[ast.AST] = [resolve.parse(path)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            statements.append(node)
        # Imports below `if TYPE_CHECKING:` do not run, so no result depends on them.
        elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            todo += node.orelse
        elif not isinstance(node, ast.expr):
            todo += ast.iter_child_nodes(node)
    return tuple(statements)


class Imports:
    """The imports of the files of a project. Every file is read only once: a later change is not seen."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._find = cache(partial(resolve.find_module, project))
        # Whether a top-level name is a module or a folder of the project.
        self._in_project = cache(lambda top: self._find(top) is not None or _is_folder(project, top))
        self._imports_of = cache(self._read)

    def closure(self, paths: Iterable[Path]) -> tuple[frozenset[Path], frozenset[str]]:
        """Return all files and libraries that some files import, directly or through other files of the project.

        If a module of a package is imported, the `__init__.py` of the package is included, since Python runs it.

        Args:
            paths: Files of the project.

        Returns:
            The files of the project, including `paths`; and the top-level names of the libraries.

        Raises:
            Unbound: A file is not Python, or is outside the roots.
        """
        # Breadth-first: `todo` has the files that the previous round reached for the first time.
        files: set[Path] = set()
        libraries: set[str] = set()
        todo = {*paths}
        while todo:
            files |= todo
            imported = [self._imports_of(path) for path in todo]
            libraries.update(*(names for _, names in imported))
            todo = {path for imported_files, _ in imported for path in imported_files} - files
        # A package with a file in the project is not a library, even if a module that is imported from it is missing.
        packages = {resolve.module_name(self._project, path).partition(".")[0] for path in files}
        return frozenset(files), frozenset(libraries - packages)

    def _read(self, path: Path) -> tuple[frozenset[Path], frozenset[str]]:
        """Return the files and the libraries that one file imports."""
        files: set[Path] = set()
        libraries: set[str] = set()
        module = resolve.module_name(self._project, path)
        for name in {*_parents(module), *names(path, module)}:
            top = name.partition(".")[0]
            # A module of a suite can be found although its top-level package, such as `pv`, is not in the project.
            paths = _files_of(self._find, name) if self._in_project(top) or self._find(name) is not None else []
            files.update(paths)
            if not paths and not (self._in_project(top) and _is_folder(self._project, name)):
                libraries.add(top)
        return frozenset(files), frozenset(libraries)


def closure(project: Project, paths: Iterable[Path]) -> tuple[frozenset[Path], frozenset[str]]:
    """Return the files and libraries that files import, directly or not; see `Imports.closure`."""
    return Imports(project).closure(paths)


def _is_folder(project: Project, name: str) -> bool:
    """Return whether a dotted name is a folder below a root; it may be a package without `__init__.py`."""
    return any(root.joinpath(*name.split(".")).is_dir() for root in project.roots)


def _parents(module: str) -> list[str]:
    """Return the packages around a module, the outermost first."""
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _files_of(find: Find, name: str) -> list[Path]:
    """Return the files that `import name` runs; the last part of `name` may be a name in a module."""
    paths = map(find, [*_parents(name), name])
    return [path for path in paths if path is not None]
