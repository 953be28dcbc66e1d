"""The import hook of a worker and of its child processes: plant a mutant, and record which functions run.

Modules are changed while they are imported, so decorators, default values and class bodies can be mutated like any
other code, and `from module import name` imports the mutated object. This module imports only the standard library and
`pv`, because it runs before all other code.
"""

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import linecache
import operator
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from pv.errors import BrokenMutant, MutantProblem
from pv.instrument.code_cache import cache_dataclasses, load_or_compile
from pv.instrument.coverage import insert, instrument, ran, seen
from pv.instrument.swap import swap
from pv.instrument.write_guard import WriteGuard
from pv.source.patch import patch

VARIABLE = "PV_HOOK"
"""The environment variable that passes the plan to child processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The changes that the import hook makes to modules.

    Attributes:
        covered: The modules that are instrumented for coverage.
        statements: Also record every statement that runs, as `module:name@number of the statement`.
        guarded: Forbid to write to the project, and to remove files outside the folder that all workers share.
        packages: The packages that are imported from `roots` before any other folder (`RootsFirst`).
        roots: The folders that modules of the project are imported from.
        root: The folder of the project.
        log: The file to which child processes write their traces. It is in the folder of one worker, which is in the
            folder that all workers share.
        cache: The folder of compiled code that workers share.
        module: The module that is mutated; "" for none.
        name: The function to edit, or the attribute to swap.
        find: The code to replace; None for a swap.
        replace: The new code of an edit.
        occurrence: The index of the occurrence of `find`; None if `find` must occur exactly once.
        swap_with: The replacement of a swap, as `module:attribute`.
    """

    covered: tuple[str, ...] = ()
    statements: bool = False
    guarded: bool = False
    packages: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    root: str = ""
    log: str = ""
    cache: str = ""
    module: str = ""
    name: str = ""
    find: str | None = None
    replace: str = ""
    occurrence: int | None = None
    swap_with: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        raw: dict[str, Any] = json.loads(text)
        raw |= {name: tuple(raw[name]) for name in ("covered", "packages", "roots") if name in raw}
        return cls(**raw)


class ImportHook(importlib.abc.MetaPathFinder):
    """Finds the modules of a plan before other finders, and changes them while they are loaded."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.applied = False
        self.broken = ""
        """The reason why the mutant could not be applied; "" if it was applied or if there is no mutant."""
        self.asked = set[str]()
        """The modules of the project that an import tried to load, whether or not they exist."""
        self.loaded: dict[str, str] = {}
        """The file of every module that was loaded through this hook, by the name of the module."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not (name == self.plan.module or self.covers(name) or self.is_in_project(name)):
            return None
        self.asked.add(name)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                if isinstance(spec.loader, importlib.machinery.SourceFileLoader):
                    spec.loader = Loader(self, name, spec.loader.path)
                return spec
        return None

    def script_finder(self, path: str) -> "ScriptFinder":
        """Return the finder of a script of the project. `install` adds this method to `sys.path_hooks`.

        Before Python runs a file, it calls these hooks to find out whether the file is an archive; if a hook returns a
        finder, the finder loads the file. So a script is recorded and mutated like a module, also if `multiprocessing`
        runs the script again.

        Raises:
            ImportError: The path is not a script of the project.
        """
        if path.endswith(".py") and os.path.isfile(path):  # noqa: PTH113  (Path.is_file raises for an invalid path)
            real = Path(path).resolve()
            for root in map(Path, self.plan.roots):
                if real.is_relative_to(root):
                    name = ".".join(real.relative_to(root).with_suffix("").parts)
                    if name == self.plan.module or self.covers(name) or self.is_in_project(name):
                        return ScriptFinder(Loader(self, name, path, is_script=True))
        raise ImportError(path)

    def covers(self, name: str) -> bool:
        """Return whether a module, or a package around it, is instrumented for coverage."""
        return any(name == module or name.startswith(f"{module}.") for module in self.plan.covered)

    def is_in_project(self, name: str) -> bool:
        """Return whether a module belongs to a package of the project."""
        return name.partition(".")[0] in self.plan.packages

    @property
    def mutated_name(self) -> str:
        """The name by which coverage records the mutated function."""
        return self.plan.swap_with or f"{self.plan.module}:{self.plan.name}"


class Loader(importlib.machinery.SourceFileLoader):
    """Loads a module with the changes of the plan.

    Args:
        is_script: Whether the module runs as `__main__`. Coverage and mutants still use the module name of its file.
    """

    def __init__(self, hook: ImportHook, name: str, path: str, *, is_script: bool = False) -> None:
        super().__init__(name, path)
        self.hook, self.is_script = hook, is_script

    def get_code(self, fullname: str) -> CodeType:
        path, plan = self.path, self.hook.plan
        if self.is_script:
            fullname = self._prepare_script()
        data = self.get_data(path)
        self.hook.loaded[fullname] = os.path.abspath(path)  # noqa: PTH100  (Path.resolve would follow links)
        if fullname == plan.module and plan.find is not None:
            return self._compile(fullname, path, self._mutate(path, importlib.util.decode_source(data)))
        key = (fullname, path, self.hook.covers(fullname), plan.statements, self.is_script)
        return load_or_compile(
            plan.cache, key, data, lambda: self._compile(fullname, path, importlib.util.decode_source(data))
        )

    def _prepare_script(self) -> str:
        """Put the folder of a script first on `sys.path`, as Python does; return the module name of its file."""
        if sys.path and sys.path[0] == self.path:
            sys.path[0] = os.path.dirname(os.path.abspath(self.path))  # noqa: PTH100, PTH120  (Path.resolve would follow links)
        if self.name == self.hook.plan.module and self.hook.plan.swap_with:
            self.hook.broken = f"{self.path} runs as a script, in which nothing can be swapped: use an `edit`"
        self.hook.asked.add(self.name)
        # The script runs now. Coverage names top-level code like a function, with an empty name after the colon.
        (seen if self.hook.covers(self.name) else ran).add(f"{self.name}:")
        return self.name

    def _mutate(self, path: str, source: str) -> str:
        """Return the mutated source of a module."""
        plan = self.hook.plan
        with self._planting():
            source = patch(source, plan.name, plan.find or "", plan.replace, plan.occurrence)
        # Tracebacks and `inspect.getsource` read `linecache` before the file, so they show the mutated source.
        linecache.cache[path] = (len(source), None, list(io.StringIO(source)), path)
        return source

    def _compile(self, fullname: str, path: str, source: str) -> CodeType:
        """Return the code object of a module, instrumented for coverage."""
        tree, covered = ast.parse(source, filename=path), self.hook.covers(fullname)
        instrument(tree, fullname, covered=covered, statements=covered and self.hook.plan.statements)
        if self.is_script:
            insert(tree.body, "__spec__ = __cached__ = __package__ = None")  # the values that Python sets for a script
        code: CodeType = compile(tree, path, "exec", dont_inherit=True)
        return code

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        if module.__name__ == self.hook.plan.module and self.hook.plan.swap_with:
            with self._planting():
                swap(module, self.hook.plan.name, _load_replacement(self.hook.plan))

    @contextmanager
    def _planting(self) -> Iterator[None]:
        """Record whether planting the mutant succeeded, because a falsifier may catch an error in a child process."""
        try:
            yield
        except BrokenMutant as error:
            self.hook.broken = str(error)
            raise
        self.hook.applied = True


class ScriptFinder:
    """Finds no module but `__main__`, which `loader` loads."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def find_spec(self, name: str, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if name != "__main__":
            return None
        return importlib.machinery.ModuleSpec(name, self.loader, origin=self.loader.path)


class RootsFirst(importlib.abc.MetaPathFinder):
    """Finds the packages of the project in its roots, also packages without `__init__.py`.

    Without this finder, Python prefers an installed package of the same name to a folder without `__init__.py`.
    """

    def __init__(self, packages: set[str], roots: list[str]) -> None:
        self.packages, self.roots = packages, roots

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.PathFinder.find_spec(name, self.roots) if name in self.packages else None


def _load_replacement(plan: Plan) -> object:
    """Return the replacement of a swap. Raise BrokenMutant if its module or attribute is missing."""
    source, _, attribute = plan.swap_with.partition(":")
    try:
        return operator.attrgetter(attribute)(importlib.import_module(source))
    except (ImportError, AttributeError) as error:
        raise BrokenMutant(MutantProblem.NOT_LOADED, f"cannot load {plan.swap_with}: {error}") from error


def install(plan: Plan) -> ImportHook:
    """Install the import hook, also for child processes. Raise BrokenMutant if the module of the mutant is loaded."""
    if plan.module in sys.modules:
        message = f"{plan.module} is imported already, so it can no longer be mutated"
        raise BrokenMutant(MutantProblem.NOT_LOADED, message)
    hook = ImportHook(plan)
    if plan.cache:
        cache_dataclasses(plan.cache)
    sys.meta_path[:0] = [hook, RootsFirst(set(plan.packages), list(plan.roots))]
    sys.path_hooks.insert(0, hook.script_finder)
    os.environ[VARIABLE] = plan.to_json()
    if plan.guarded:
        sys.addaudithook(
            WriteGuard([str(Path(root).resolve()) for root in plan.roots], str(Path(plan.log).parent.parent))
        )
    return hook
