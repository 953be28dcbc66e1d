"""Files of falsifiers are collected once, and the import system is left as it was."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

from pv.pytest_plugin.modules import Imports
from tests.pytest_plugin.subprocesses import run_pytest

Project = Callable[[str], Path]


def test_a_file_that_is_named_is_collected_once(project: Project) -> None:
    project("small")
    done = run_pytest("falsifiers/falsify_counting.py", "-k", "limit")
    assert "1 passed" in done.stdout, done.stdout


def test_import_system_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "falsify_it.py").write_text("FOUND = True\n")
    path, finders = list(sys.path), list(sys.meta_path)
    imports = Imports(["falsify_it"], [tmp_path])
    assert importlib.util.find_spec("falsify_it") is not None
    assert sys.path[: len(path)] == path
    imports.close()
    assert (sys.path, sys.meta_path) == (path, finders)
