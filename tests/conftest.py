"""Projects to validate: each test gets a copy of its own, so that it may break it."""

import gc
import os
import signal
import sys
import uuid
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.processes import marked_by
from tests.support.projects import PROJECTS, copy
from tests.support.workers import shared_pools as shared_pools

# Their falsifiers misbehave on purpose, and belong to projects of their own.
collect_ignore_glob = ["projects/*", "published/*"]
# `pytest -n auto` uses every core; with more threads its workers, and what they start, would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure() -> None:
    """Handle SIGINT and SIGHUP: background jobs and `nohup` ignore them, and children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first: at the end, one worker would wait for another."""
    items.sort(key=lambda item: item.path.name != "test_scripts.py")


def pytest_collection_finish() -> None:
    """Leave all that is loaded out of collections of garbage: they take long, and copy memory in forks."""
    gc.freeze()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Copies one of `tests/projects` and makes it the working directory."""

    def copied(name: str) -> Path:
        monkeypatch.chdir(target := copy(name, tmp_path / name))
        return target

    return copied


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def without_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a virtual environment that has the packages of this one, but for PyTorch."""
    folder = tmp_path_factory.mktemp("without_torch")
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    # A .pth file may lead to a folder with PyTorch, so what these files lead to is linked in their place.
    packages = {path.name: path for name in sys.path if name.endswith("site-packages") for path in Path(name).iterdir()}
    for name, path in packages.items():
        if not name.startswith(("torch", "functorch")) and path.suffix != ".pth":
            (site / name).symlink_to(path)
    (site / "clone.pth").write_text(f"{PROJECTS.parents[1]}\n", encoding="utf-8")
    return folder / "bin/python"


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[int]]]:
    """Lists the processes that descend from this test, wherever they hang: all inherit a mark in their environment."""
    mark = f"MARK_{uuid.uuid4().hex}"
    monkeypatch.setenv(mark, "1")
    yield lambda: marked_by(mark)
