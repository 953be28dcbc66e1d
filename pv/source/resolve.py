"""Resolve the names in a contract to files and definitions, from paths and syntax trees, without importing any code.

`function` resolves tests, and `target_file` subjects. `definition` follows imports in the files of a project to the
definition of a name. `parameters` returns the parameters that the callers of a function see.
"""

import ast
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from pv.contract.load import shown_path
from pv.contract.model import Binding, Target
from pv.errors import PvError
from pv.source import patch, syntax
from pv.source.project import Project, is_shipped, suite_homes

MAX_IMPORTS = 8
"""Maximum number of `from module import name` that are followed to a definition, since imports may be circular."""
TRANSPARENT = set("staticmethod classmethod no_grad inference_mode enable_grad compile cache lru_cache".split())
"""Names of decorators that change neither the result of a function nor its parameters, except for `self` or `cls`."""
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Unbound(PvError):
    """A name in a contract that cannot be resolved.

    Args:
        kind: The step that failed: `file` if there is no such file or module, `name` if the file does not define the
            name, `source` if the file is not Python.
        message: The error.
        known: The names that exist, for a hint.
    """

    def __init__(self, kind: str, message: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.known = known


@dataclass(frozen=True, slots=True)
class Function:
    """The definition of a function that a contract names, in its file."""

    path: Path
    node: FunctionNode

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the names of the parameters, without `*args` and `**kwargs`."""
        arguments = self.node.args
        return tuple(a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))

    @property
    def takes_any(self) -> bool:
        """Return whether the function takes keyword arguments of any name (`**kwargs`)."""
        return self.node.args.kwarg is not None

    @property
    def is_lazy(self) -> bool:
        """Return whether the function is a coroutine or a generator, so that a call does not run its body."""
        if isinstance(self.node, ast.AsyncFunctionDef):
            return True
        return "yield" in source(self.path) and syntax.is_generator(self.node.body)


def function(project: Project, binding: Binding) -> Function:
    """Return the function of a binding, in the project or in a conformance suite. Raise Unbound."""
    path = _resolved(project.root / binding.file)
    # If a contract of the project applies a suite, the tests of these claims are in the suite, not in the project.
    if not _is_file(path):
        suite_files = (_resolved(home / binding.file) for home, _ in suite_homes())
        path = next((file for file in suite_files if is_shipped(file) and _is_file(file)), path)
    if not (path.is_relative_to(project.root) or is_shipped(path)):
        raise Unbound("file", f"{binding.file} is outside the project {project.root}")
    if not _is_file(path):
        raise Unbound("file", f"no such file: {binding.file}", _python_files(path.parent, project.root))
    by_name = _functions(path, stamp(path))
    if binding.name not in by_name:
        raise Unbound("name", f"unknown name {binding.name!r} in {binding.file}", tuple(by_name))
    return Function(path, by_name[binding.name])


@lru_cache(maxsize=256)
def _functions(path: Path, _: tuple[int, int]) -> dict[str, FunctionNode]:
    """Return the functions of a file by name; the first one if several have the same name."""
    by_name: dict[str, FunctionNode] = {}
    for name, node in syntax.functions(parse(path)):
        by_name.setdefault(name, node)
    return by_name


def module_name(project: Project, path: Path) -> str:
    """Return the dotted name of a file's module, from its path below the first root that contains it. Raise Unbound."""
    if (name := _module_name(project.roots, path)) is None:
        raise Unbound("file", f"{path} is outside the roots in [tool.pv]")
    return name


@lru_cache(maxsize=4096)
def _module_name(roots: tuple[Path, ...], path: Path) -> str | None:
    suite_roots = [import_root for import_root, suite in suite_homes() if path.is_relative_to(suite)]
    for root in (*roots, *suite_roots):
        if path.is_relative_to(root):
            parts = path.relative_to(root).with_suffix("").parts
            return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return None


def module_file(project: Project, module: str) -> Path:
    """Return the file that a module is loaded from, as `find_module`. Raise Unbound if there is none."""
    path = find_module(project, module)
    if path is not None:
        return path
    roots = ", ".join(_relative_path(root, project.root) for root in project.roots)
    raise Unbound("file", f"unknown module {module!r} below the roots in [tool.pv] ({roots})", _modules(project))


def find_module(project: Project, module: str) -> Path | None:
    """Return the file that a module is loaded from: the first match in the roots, or else in a suite.

    Return None if there is no such file.
    """
    relative = module.replace(".", os.sep)
    for root in project.roots:
        for name in (f"{root}{os.sep}{relative}{os.sep}__init__.py", f"{root}{os.sep}{relative}.py"):
            # A link to a file outside the root is ignored, since the code under contract must be below the roots.
            is_file = os.path.isfile(name)  # noqa: PTH113  (Path.is_file raises for a name that is too long)
            if is_file and os.path.realpath(name).startswith(os.path.join(root, "")):  # noqa: PTH118  (Path is slow)
                return Path(name)
    return _suite_module(relative)


def _suite_module(relative: str) -> Path | None:
    """Return the file of a module of a conformance suite; None if there is none.

    Args:
        relative: The relative path of the module, without a suffix.
    """
    for home, folder in suite_homes():
        # First compare the path, without access to the disk: this function is called for every import of every file.
        if relative.startswith(str(folder.relative_to(home))):
            files = (home / relative / "__init__.py", home / f"{relative}.py")
            return next((path for path in files if path.is_file()), None)
    return None


def target_file(project: Project, target: Target) -> Path:
    """Return the file of a target's module. Raise Unbound if the module or the attribute does not exist."""
    path = module_file(project, target.module)
    if not target.attribute:
        return path
    names = exported(path)
    first = target.attribute.split(".")[0]
    # Attributes of an imported object are not checked, because its definition may be in a library.
    is_imported = first in names and first not in syntax.names(parse(path))
    if target.attribute not in names and not is_imported:
        raise Unbound("name", f"unknown name {target.attribute!r} in {target.module}", tuple(names))
    return path


def _resolved(path: Path) -> Path:
    """Return the path with symbolic links resolved; the path unchanged if it is too long or a link to itself."""
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
def _parse(path: Path, _: tuple[int, int]) -> ast.Module:
    try:
        return patch.read(source(path)).tree
    except syntax.UNREADABLE as error:
        reason = error.args[0] if error.args else type(error).__name__
        raise Unbound("source", f"{_position(path, error)} is not valid Python: {reason}") from error
    except OSError as error:
        raise Unbound("source", f"{path.name} cannot be read: {error.strerror}") from error


def _position(path: Path, error: BaseException) -> str:
    """Return the path, followed by the line and column of the error if it has these, such as `src/bpe.py:44:9`."""
    shown = str(shown_path(path))
    if not isinstance(error, SyntaxError) or error.lineno is None:
        return shown
    return f"{shown}:{error.lineno}:{error.offset}" if error.offset else f"{shown}:{error.lineno}"


def source(path: Path) -> str:
    """Return the text of a Python file, decoded by its declared encoding, with all line ends converted to newlines."""
    return _source(path, stamp(path))


@lru_cache(maxsize=256)
def _source(path: Path, _: tuple[int, int]) -> str:
    return importlib.util.decode_source(path.read_bytes())


def stamp(path: Path) -> tuple[int, int]:
    """Return the modification time and the size of a file, so that caches with this key read a changed file again."""
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


def parse(path: Path) -> ast.Module:
    """Return the syntax tree of a file. Raise Unbound if it is not Python."""
    return _parse(path, stamp(path))


def exported(path: Path) -> list[str]:
    """Return the dotted names that a module defines, then the names that its import statements bind."""
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
        paths = sorted(folder.glob("*.py"))
    except OSError:  # a name that is too long
        return ()
    return tuple(str(path.relative_to(root)) for path in paths if path.is_relative_to(root))


def _modules(project: Project) -> tuple[str, ...]:
    """Return the names of the modules in the roots and in direct subfolders of the roots, for a hint."""
    paths = (path for root in project.roots for path in sorted([*root.glob("*/*.py"), *root.glob("*.py")]))
    return tuple(module_name(project, path) for path in paths)


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a function that callers see, without `self` or `cls`.

    Attributes:
        positional: The names of the positional parameters.
        positional_only: The number of positional parameters that cannot be passed by name; they come first.
        keyword: The names of the keyword-only parameters.
        required: The names of the parameters without a default.
        any_positional, any_keyword: Whether the function has `*args`, and whether it has `**kwargs`.
    """

    positional: tuple[str, ...]
    positional_only: int
    keyword: tuple[str, ...]
    required: frozenset[str]
    any_positional: bool
    any_keyword: bool

    def problem(self, count: int, keywords: Sequence[str]) -> str:
        """Return the reason why a call with these arguments raises a TypeError; "" if it raises none.

        Args:
            count: The number of positional arguments.
            keywords: The names of the keyword arguments.
        """
        if count > len(self.positional) and not self.any_positional:
            return f"takes {len(self.positional)} positional arguments, got {count}"
        by_name = {*self.positional[self.positional_only :], *self.keyword}
        unknown = [name for name in keywords if name not in by_name]
        if unknown and not self.any_keyword:
            return f"has no parameter {unknown[0]!r}"
        by_position = set(self.positional[:count])
        # `**kwargs` accepts the name of a positional-only parameter, but does not pass the parameter.
        passed_by_name = by_name.intersection(keywords)
        duplicates = [name for name in keywords if name in by_position & passed_by_name]
        if duplicates:
            return f"gets multiple values for {duplicates[0]!r}"
        passed = by_position | passed_by_name
        missing = [name for name in (*self.positional, *self.keyword) if name in self.required - passed]
        return f"is missing {', '.join(map(repr, missing))}" if missing else ""


def parameters(project: Project, target: Target) -> Parameters | None:
    """Return the parameters with which a function, method or class is called; None if the source does not show them."""
    node = definition(project, target)
    if isinstance(node, ast.ClassDef):
        init = dict(syntax.walk(node.body)).get("__init__")
        # A missing __init__ may be inherited, or added by a decorator or a metaclass.
        return _parameters(init, method=True) if isinstance(init, FunctionNode) and not node.decorator_list else None
    owner = target.attribute.rpartition(".")[0]
    method = bool(owner) and isinstance(definition(project, Target(target.module, owner)), ast.ClassDef)
    return _parameters(node, method=method) if isinstance(node, FunctionNode) else None


def definition(project: Project, target: Target) -> syntax.Definition | None:
    """Return the definition of a name that a module defines or imports; None unless there is exactly one."""
    target = follow_imports(project, target)
    path = find_module(project, target.module)
    definitions = _definitions(parse(path), target) if path is not None else []
    return definitions[0] if len(definitions) == 1 else None


def follow_imports(project: Project, target: Target) -> Target:
    """Return the target in the module that defines the name.

    If that module is a library, return the target in the last module of the project that imports the name.
    """
    for _ in range(MAX_IMPORTS):
        path = find_module(project, target.module)
        tree = parse(path) if path is not None else None
        if path is None or tree is None or _definitions(tree, target):
            break
        source_target = _import_source(project, tree, target, syntax.package_of(target.module, path))
        if source_target is None or find_module(project, source_target.module) is None:
            break
        target = source_target
    return target


def _definitions(tree: ast.Module, target: Target) -> list[syntax.Definition]:
    return [node for name, node in syntax.walk(tree.body) if name == target.attribute]


def returns_nothing(function: ast.FunctionDef) -> bool:
    """Return whether the source of a function shows that it can only return None."""
    if not {syntax.name_of(decorator) for decorator in function.decorator_list} <= TRANSPARENT:
        return False  # an unknown decorator may change the result
    is_empty = all(isinstance(statement, ast.Pass) or syntax.is_text(statement) for statement in function.body)
    if is_empty or isinstance(function.body[-1], ast.Raise):
        return False  # a derived class implements this method
    if syntax.is_generator(function.body):
        return False
    returned = [node.value for node in syntax.nodes_inside(function.body) if isinstance(node, ast.Return)]
    return all(value is None or (isinstance(value, ast.Constant) and value.value is None) for value in returned)


def _import_source(project: Project, tree: ast.Module, target: Target, package: list[str]) -> Target | None:
    """Return the target from which a module imports a name; None if the module does not import the name."""
    first, _, rest = target.attribute.partition(".")
    for node in syntax.imports(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        module = syntax.imported_module(node, package)
        # `import *` imports public names. The name is followed only if the imported module defines it itself.
        if node.names[0].name == "*" and not first.startswith("_"):
            candidate, path = Target(module, target.attribute), find_module(project, module)
            if path is not None and _definitions(parse(path), candidate):
                return candidate
        for alias in node.names:
            if (alias.asname or alias.name) == first:
                return Target(module, f"{alias.name}.{rest}" if rest else alias.name)
    return None


def _parameters(node: FunctionNode, *, method: bool) -> Parameters | None:
    """Return the parameters of a function or `method`; None if a decorator may change them."""
    names = {syntax.name_of(decorator) for decorator in node.decorator_list}
    if not names <= TRANSPARENT:
        return None
    arguments = node.args
    skipped = 1 if method and "staticmethod" not in names else 0  # `self` or `cls`
    positional = [parameter.arg for parameter in (*arguments.posonlyargs, *arguments.args)]
    return Parameters(
        positional=tuple(positional[skipped:]),
        positional_only=max(0, len(arguments.posonlyargs) - skipped),
        keyword=tuple(parameter.arg for parameter in arguments.kwonlyargs),
        required=frozenset({*syntax.required_parameters(node)} - {*positional[:skipped]}),
        any_positional=arguments.vararg is not None,
        any_keyword=arguments.kwarg is not None,
    )
