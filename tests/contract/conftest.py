"""Files that hold anything, in the place of a contract, and what loading and lint say of them."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pv.contract.finding import Finding, Severity
from pv.contract.load import load
from pv.linting import lint
from pv.source.project import Project, find_project

ROOT = Path(__file__).parents[2]
PROJECT = find_project(ROOT / "tests" / "bad_contracts" / "project")
# Fifty times what any case takes here: a case that is over it does something quadratic.
SOON_S = 20.0


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str | bytes], Path]:
    """Writes a contract of this content, text as UTF-8."""

    def write_(content: str | bytes) -> Path:
        path = tmp_path / "contract.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_


@pytest.fixture
def refusals() -> Callable[[Path], list[str]]:
    """What loading says of a file, without its path; every refusal at a place, and no contract with one."""

    def refusals_(path: Path) -> list[str]:
        started = time.process_time()
        loaded = load([path])
        assert time.process_time() - started < SOON_S
        assert all(
            found.location.path == path and found.location.line >= 1 and found.location.column >= 1
            for found in loaded.findings
        )
        assert all(found.severity is Severity.REFUSAL for found in loaded.findings)
        assert loaded.contracts == ()
        return [str(found).removeprefix(f"{path}:") for found in loaded.findings]

    return refusals_


@pytest.fixture
def problems() -> Callable[..., list[Finding]]:
    """All findings of a file, of loading and of lint, each at a place."""

    def problems_(path: Path, project: Project = PROJECT) -> list[Finding]:
        loaded = load([path])
        found = [*loaded.findings, *lint(loaded.contracts, project=project)]
        assert all(finding.location.line >= 1 and finding.location.column >= 1 for finding in found)
        return found

    return problems_


@pytest.fixture
def command() -> "Callable[[Path], subprocess.CompletedProcess[bytes]]":
    """Runs `pv lint` on a path."""

    def command_(path: Path) -> "subprocess.CompletedProcess[bytes]":
        arguments = [sys.executable, "-m", "pv", "lint", str(path)]
        return subprocess.run(arguments, cwd=ROOT, capture_output=True, timeout=60)

    return command_
