"""Projects to validate: each test gets a copy of its own, so that it may break it."""

import os
import shutil
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Their falsifiers misbehave on purpose, and belong to projects of their own.
collect_ignore_glob = ["projects/*"]
PROJECTS = Path(__file__).parent / "projects"


def pytest_configure() -> None:
    """Handle SIGINT and SIGHUP: background jobs and `nohup` ignore them, and children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Copies one of `tests/projects` and makes it the working directory."""

    def copy(name: str) -> Path:
        target = tmp_path / name
        shutil.copytree(PROJECTS / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        monkeypatch.chdir(target)
        return target

    return copy


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[int]]]:
    """Lists the processes that descend from this test, wherever they hang: all inherit a mark in their environment."""
    mark = f"MARK_{uuid.uuid4().hex}"
    monkeypatch.setenv(mark, "1")
    yield lambda: [pid for pid in _pids() if pid != os.getpid() and _has(pid, mark)]


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _has(pid: int, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
