"""Benchmarks name what exists: they are run by hand, and a rename elsewhere would break them unseen."""

import ast
import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))
PROJECT = ("pv.", "reference_trainer.", "falsifiers.")
"""Of modules within these packages: isolation.py imports from a package of falsifiers that it writes itself."""


def assigned(path: Path) -> set[str]:
    """Return the names that a module assigns, without running it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    targets = (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets)
    return {target.id for target in targets if isinstance(target, ast.Name)}


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.name)
def test_names_that_a_benchmark_imports_exist(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PROJECT):
            module = importlib.import_module(node.module)
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name) and alias.name != "*"]
            missing = [name for name in missing if importlib.util.find_spec(f"{node.module}.{name}") is None]
            assert missing == [], f"{path.name}:{node.lineno} imports {missing} of {node.module}"


def test_adapters_of_other_libraries_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    peers = importlib.import_module("losses").PEERS
    for name in ("losses", "measuring"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for title, (module, subject, _) in peers.items():
        assert subject in assigned(ROOT / "falsifiers" / "peers" / f"{module}.py"), title
