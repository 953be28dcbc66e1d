"""Imports point one way. Prose alone drifts; this file is the enforced copy."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "hypothesis", "pytest", "_pytest", "numpy")

# What each module or package of pv may import of pv. Evidence and claims know nothing of each other or of the verdict;
# what decides imports only what it decides over; what is imported by code under contract is the standard library.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "model": set(),
    "evidence": set(),
    "canonical": set(),
    "project": {"errors"},
    "spelling": set(),
    "syntax": {"errors"},
    "probes": {"syntax"},
    "fence": {"errors"},
    "hook": {"errors", "fence", "probes", "syntax"},
    "equations": {"spelling"},
    "bounds": set(),
    "proofs": {"evidence", "model"},
    "cells": {"evidence", "model"},
    "verdict": {"cells", "evidence", "model"},
    "loading": {"model", "spelling"},
    "binding": {"errors", "model", "project", "syntax"},
    "linting": {"binding", "bounds", "equations", "errors", "loading", "model", "project", "syntax"},
    "engines": {"bounds", "equations", "evidence"},
    "workers": {"bounds", "engines", "errors", "evidence", "hook", "model", "probes"},
    "tasks": {"binding", "bounds", "hook", "model", "project"},
    "devices": {"evidence", "project", "tasks", "workers"},
    "records": {"binding", "canonical", "evidence", "loading", "model", "project"},
    "matrix": {"cells", "model", "verdict"},
    "report": {"cells", "engines", "equations", "errors", "evidence", "matrix", "model", "verdict"},
    "mutation": {
        "binding",
        "canonical",
        "errors",
        "evidence",
        "loading",
        "model",
        "probes",
        "project",
        "proofs",
        "records",
        "syntax",
        "tasks",
        "workers",
    },
    "mutating": {"campaign", "errors", "linting", "model", "mutation", "project", "request"},
    "campaign": {
        "cells",
        "devices",
        "evidence",
        "model",
        "mutation",
        "project",
        "proofs",
        "records",
        "tasks",
        "workers",
    },
    "subjects": {"binding", "errors", "model", "project", "spelling"},
    "replaying": {"bounds", "engines", "errors", "model", "spelling"},
    "request": {"cells", "errors", "linting", "loading", "model", "project", "replaying", "subjects"},
    "runner": {
        "campaign",
        "devices",
        "errors",
        "evidence",
        "linting",
        "model",
        "mutation",
        "project",
        "records",
        "request",
        "verdict",
    },
    "comparison": {
        *("campaign", "errors", "loading", "matrix", "model", "project", "request", "runner", "subjects", "verdict"),
    },
    "terminal": {"campaign", "errors"},
    "cli": {
        "comparison",
        "errors",
        "linting",
        "loading",
        "model",
        "mutating",
        "mutation",
        "report",
        "request",
        "runner",
        "terminal",
    },
    "pytest_plugin": {
        *("binding", "engines", "hook", "loading", "model", "project", "pytest_prove", "pytest_run", "tasks"),
    },
    "pytest_prove": {"bounds", "model"},
    "pytest_run": {"binding", "engines", "model", "project"},
}
MAY_IMPORT_THIRD_PARTY: dict[str, set[str]] = {
    "loading": {"yaml", "jsonschema"},
    "records": {"jsonschema"},
    "mutation": {"jsonschema"},
    "report": {"rich"},
    "cli": {"click"},
    "terminal": {"rich"},
    "equations": {"torch"},
    "engines": {"crosshair", "hypothesis", "torch"},
    "workers": {"hypothesis", "torch"},
    "pytest_plugin": {"hypothesis", "pytest", "torch"},
    "pytest_prove": {"pytest"},
    "pytest_run": {"pytest"},
}


def imported(path: Path) -> Iterator[str]:
    """The absolute names that a file imports, wherever in it; under TYPE_CHECKING too, which is also knowledge."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join((*base, *([node.module] if node.module else [])))
            yield from (f"{stem}.{alias.name}" for alias in node.names)


def files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def layer(path: Path) -> str:
    return path.relative_to(ROOT / "pv").parts[0].removesuffix(".py")


def layers() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in files("pv"):
        if not layer(path).startswith("__"):
            found.setdefault(layer(path), []).append(path)
    return found


def arrows(paths: list[Path], package: str) -> set[str]:
    """What of `package` the files import, by its first part; a name of the package itself is none of its modules."""
    names = [name.split(".") for path in paths for name in imported(path)]
    return {name[1] for name in names if name[0] == package and len(name) > 1 and not name[1].startswith("__")}


def foreign(paths: list[Path]) -> set[str]:
    tops = {name.split(".")[0] for path in paths for name in imported(path)}
    return tops - set(sys.stdlib_module_names) - {"pv"}


@pytest.mark.parametrize(
    ("package", "stranger"),
    [
        ("pv", "reference_trainer"),
        ("pv", "falsifiers"),
        ("reference_trainer", "pv"),
        ("reference_trainer", "falsifiers"),
        ("reference_trainer", "hypothesis"),
        ("reference_trainer", "pytest"),
        ("falsifiers", "pv"),
    ],
)
def test_a_package_does_not_know_another(package: str, stranger: str) -> None:
    knowing = [path for path in files(package) for name in imported(path) if name.split(".")[0] == stranger]
    assert knowing == []


def test_every_layer_of_pv_has_its_arrows() -> None:
    assert sorted(layers()) == sorted(MAY_IMPORT)


@pytest.mark.parametrize("name", sorted(MAY_IMPORT))
def test_a_layer_imports_only_along_its_arrows(name: str) -> None:
    assert arrows(layers()[name], "pv") - {name} <= MAY_IMPORT[name]


@pytest.mark.parametrize("name", sorted(MAY_IMPORT))
def test_a_layer_imports_only_the_third_parties_it_is_for(name: str) -> None:
    assert foreign(layers()[name]) <= MAY_IMPORT_THIRD_PARTY.get(name, set())


def test_the_arrows_have_no_cycle() -> None:
    left = {name: set(targets) for name, targets in MAY_IMPORT.items()}
    while left:
        free = {name for name, targets in left.items() if not targets & set(left)}
        assert free, f"a cycle among {sorted(left)}"
        left = {name: targets for name, targets in left.items() if name not in free}


@pytest.mark.parametrize("name", ["canonical", "fence", "hook", "probes", "syntax"])
def test_what_runs_inside_code_under_contract_is_standard_library(name: str) -> None:
    assert foreign(layers()[name]) == set()


def loaded_by(code: str) -> set[str]:
    """The heavy packages that a new interpreter has loaded once it has run `code`."""
    script = f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\nprint(*sys.modules, file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return {name.split(".")[0] for name in ended.stderr.split()} & {*HEAVY, "pv"}


@pytest.mark.parametrize(
    "code",
    [
        "import pv",
        "from pv import load, lint, find_project, render",
        "from pv.cli import main; main(['--help'])",
        "from pv.cli import main; main(['validate', '--help'])",
        "from pv.cli import main; main(['mutate', '--help'])",
        "from pv.cli import main; main(['lint', 'tests/bad_contracts/good.yaml'])",
        "from pv.cli import main; main(['lint'])",
        "from pv.cli import main; main(['list'])",
        "from pv.cli import main; main(['show', '--format', 'latex'])",
        "from pv.cli import main; main(['schema', 'report'])",
    ],
)
def test_a_light_command_loads_nothing_heavy(code: str) -> None:
    assert loaded_by(code) == {"pv"}
