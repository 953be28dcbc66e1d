"""Projects to validate or to lint."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from pv.contract.finding import Finding
from pv.contract.load import load
from pv.linting import lint
from pv.source.project import find_project

PROJECTS, BAD = (Path(__file__).parents[1] / name for name in ("projects", "bad_contracts"))
HEAD = "schema: pv/1\nmetadata: {id: c, version: 1.0.0, description: d, references: [r]}\n"
Project = Callable[[str], Path]
"""The fixture that copies one of `tests/projects`."""


def copy(name: str, target: Path) -> Path:
    """Copy one of `tests/projects`, and return where it is."""
    return shutil.copytree(PROJECTS / name, target, ignore=shutil.ignore_patterns("__pycache__"))


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def linted(folder: Path, files: Mapping[str, str]) -> list[Finding]:
    """Write a project of these files, and return what loading and lint find in its contracts."""
    write(folder, {"pyproject.toml": '[tool.pv]\nroots = ["."]\n', **files})
    return findings(folder, *(folder / name for name in files if name.endswith(".yaml")))


def findings(folder: Path, *contracts: Path) -> list[Finding]:
    """Return what loading and lint find in contracts of the project in a folder."""
    loaded = load(contracts)
    return [*loaded.findings, *lint(loaded.contracts, project=find_project(folder))]
