"""Benchmarks name what exists: they are run by hand, and a rename elsewhere would break them unseen."""

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))
PROJECT = ("pv.", "reference_trainer.", "falsifiers.")
"""Of modules within these packages: isolation.py imports from a package of falsifiers that it writes itself."""


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.name)
def test_names_that_a_benchmark_imports_exist(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PROJECT):
            module = importlib.import_module(node.module)
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name) and alias.name != "*"]
            missing = [name for name in missing if importlib.util.find_spec(f"{node.module}.{name}") is None]
            assert missing == [], f"{path.name}:{node.lineno} imports {missing} of {node.module}"
