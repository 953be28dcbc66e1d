"""Collect the files of falsifiers, and make their imports work without an effect on other test modules."""

import fnmatch
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from pv.instrument.import_hook import RootsFirst
from pv.pytest_plugin.claims import PREFIXES


class FalsifierModule(pytest.Module):
    """A module whose functions `falsify_*` and `prove_*` are collected, whatever `python_functions` says."""

    def funcnamefilter(self, name: str) -> bool:
        return name.startswith(PREFIXES) or super().funcnamefilter(name)


def holds_falsifiers(path: Path, bound: Iterable[Path], session: pytest.Session) -> bool:
    """Return whether a file has falsifiers: `falsify_*.py`, or `prove_*.py` that is bound or named to pytest."""
    if path.suffix != ".py" or not path.name.startswith(PREFIXES):
        return False
    return path.name.startswith("falsify_") or path.resolve() in bound or session.isinitpath(path)


def is_collected_by_pytest(path: Path, session: pytest.Session) -> bool:
    """Return whether pytest itself collects a Python file."""
    patterns: list[str] = session.config.getini("python_files")
    return session.isinitpath(path) or any(
        fnmatch.fnmatch(str(path) if "/" in pattern else path.name, f"*/{pattern}" if "/" in pattern else pattern)
        for pattern in patterns
    )


class Imports:
    """Makes modules importable from the roots of a project until `close`.

    The roots come last, so that every other test imports what it would import without them, except that the top-level
    packages of `modules`, which hold falsifiers, come from the roots.
    """

    def __init__(self, modules: Iterable[str], roots: Iterable[Path]) -> None:
        names = [str(root) for root in roots]
        self._added = [name for name in names if name not in sys.path]
        self._finder = RootsFirst({module.partition(".")[0] for module in modules}, names)
        # At the end of sys.path, so that other tests import what they would import without the plugin.
        sys.path += self._added
        # Behind pytest's own finder, which rewrites the assertions of these modules and finds them in the roots too.
        behind = next((i for i, finder in enumerate(sys.meta_path, 1) if "_pytest" in type(finder).__module__), 0)
        sys.meta_path.insert(behind, self._finder)

    def close(self) -> None:
        """Leave the import system as it was."""
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self._finder]
        for name in self._added:
            if name in sys.path:
                sys.path.remove(name)


def rewrite_assertions(modules: Iterable[str]) -> None:
    """Let pytest rewrite the assertions of these modules; modules that are already imported are left out."""
    names = {*modules, *(last for name in modules if (last := name.rpartition(".")[2]).startswith(PREFIXES))}
    pytest.register_assert_rewrite(*sorted(names - sys.modules.keys()))


def imported_from_elsewhere(name: str, expected: Path) -> str:
    """Return the reason why an imported module is not the project's; "" if it is."""
    file = getattr(sys.modules[name], "__file__", None)
    if file is None or Path(file).resolve() == expected.resolve():
        return ""
    return f"{name} was imported from {file}, not from {expected}; set `pythonpath` in the configuration of pytest"
