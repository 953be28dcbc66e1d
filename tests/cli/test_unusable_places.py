"""A file or folder that cannot be read or written is refused with exit code 3 and its path, by every command."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands.small import run
from tests.support.projects import Project

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
PLACES: dict[str, Callable[[Path], object]] = {
    "file": lambda path: path.write_text("no folder\n"),
    "folder": lambda path: path.mkdir(),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "loop": lambda path: path.symlink_to(path.name),
}


def refused(line: str, path: Path) -> None:
    """Check that a command is refused with the path, and neither raises nor writes a contract."""
    done = run(*line.split())
    assert done.returncode == 3, (done.returncode, done.stdout, done.stderr)
    assert path.name in done.stderr and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("line", ["new", "new --subject counting:total"])
@pytest.mark.parametrize("place", ["file", "dangling", "loop"])
def test_new_contract_in_an_unusable_folder(empty: Path, line: str, place: str) -> None:
    (empty / "counting.py").write_text("def total(steps: int) -> int:\n    return steps\n")
    PLACES[place](empty / "contracts")
    before = sorted(empty.iterdir())
    refused(line, empty / "contracts")
    assert sorted(path for path in empty.iterdir() if path.is_file()) == [p for p in before if p.is_file()]


@pytest.mark.parametrize("line", ["validate --only H-SHARE --record", "mutate proofs --sample 1 --record"])
@pytest.mark.parametrize("place", ["file", "loop"])
def test_record_in_an_unusable_folder_is_refused_before_anything_runs(
    project: Project, monkeypatch: pytest.MonkeyPatch, line: str, place: str
) -> None:
    folder = project("proofs")
    PLACES[place](folder / "evidence")
    monkeypatch.setattr("pv.workers.pool.Pool.submit", lambda *_: pytest.fail("a task was started"))
    refused(line, folder / "evidence")


CONTRACTS = [("contracts", place) for place in ("dangling", "loop")]
CONFIGURATION = [("pyproject.toml", place) for place in ("dangling", "loop")]
SAVED = [("saved.json", place) for place in ("folder", "loop")]


@pytest.mark.parametrize(
    ("line", "name", "place"),
    [
        *((line, *place) for line in ("lint", "validate --dry-run", "mutate", "new") for place in CONTRACTS),
        *((line, *place) for line in ("lint", "new") for place in CONFIGURATION),
        *((line, *place) for line in ("report saved.json", "explain C-LIMIT --report saved.json") for place in SAVED),
    ],
)
def test_unreadable_contracts_configuration_or_report(project: Project, line: str, name: str, place: str) -> None:
    path = project("small") / name
    if path.exists():
        path.rename(path.with_name("others"))
    PLACES[place](path)
    refused(line, path)
    assert not path.with_name("nowhere").exists()


def _as_a_user() -> None:
    """Let permissions bind this process also if it is root."""
    libc = ctypes.CDLL(None)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def as_a_user(line: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pv", *line.split()]
    environment = {name: value for name, value in os.environ.items() if name != "HOME"}
    return subprocess.run(command, capture_output=True, text=True, preexec_fn=_as_a_user, env=environment, timeout=600)


@pytest.mark.parametrize("line", ["lint", "validate --only H-EITHER --no-mutants"])
def test_folder_of_contracts_that_cannot_be_listed(project: Project, line: str) -> None:
    place = "contracts" if line == "lint" else "contracts/more"
    folder = project("proofs") / place
    folder.mkdir(exist_ok=True)
    folder.chmod(0)
    done = as_a_user(line)
    folder.chmod(0o755)
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"{place}:1:1 PV001 cannot read the file: Permission denied" in done.stdout + done.stderr


@pytest.fixture
def read_only(project: Project) -> Iterator[Path]:
    """A checkout in which nothing can be written."""
    folder = project("proofs")
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    yield folder
    for path in folders:
        path.chmod(0o755)


@pytest.mark.parametrize(
    ("line", "exit_code"),
    [
        ("new first", 3),
        ("validate --only H-EITHER --record", 3),
        ("validate --only H-EITHER --no-mutants --output json=out.json", 3),
        ("validate --only H-EITHER --no-mutants", 0),
    ],
)
def test_read_only_checkout(read_only: Path, line: str, exit_code: int) -> None:
    done = as_a_user(line)
    assert done.returncode == exit_code, done.stdout + done.stderr
    assert exit_code == 0 or str(read_only) in done.stderr or "out.json" in done.stderr, done.stderr
