"""The real command line in a child process, with models so small that importing torch is what takes the time."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.reference_trainer.forked import Interpreter, Process, command

TINY = {
    "LAYERS": "1",
    "WIDTH": "16",
    "TEACHER_LAYERS": "1",
    "TEACHER_WIDTH": "16",
    "TEACHER_STEPS": "3",
    "LENGTH": "16",
    "BATCH_SIZE": "4",
    "EPOCHS": "1",
    "DATA": "text",
    "TEACHER_CACHE": "cache",
    "OUT": "out",
}
COMMAND = [sys.executable, "-m", "reference_trainer", "distill"]


@dataclass
class Trainer:
    """`reference-trainer distill` in a folder of its own; settings are in the environment, so that flags win."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *arguments: str, **options: Any) -> "subprocess.Popen[str]":
        """Start it in a new interpreter, with other streams or limits."""
        settings: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen([*COMMAND, *arguments], cwd=self.folder, env=self.environment, text=True, **settings)

    def fork(self, *arguments: str) -> Process:
        """Start it in a fork of this process."""
        return Process(["distill", *arguments], self.folder, self.environment)

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run it in a fork of this process."""
        return command(["distill", *arguments], self.folder, self.environment)

    def left(self, out: str = "out") -> list[str]:
        """What lies in `out`; nothing where there is no such directory."""
        location = self.folder / out
        return sorted(path.name for path in location.iterdir()) if location.is_dir() else []


@pytest.fixture(scope="session")
def new_trainer(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Trainer]:
    """Makes a trainer in an empty folder with a text."""

    def new() -> Trainer:
        folder = tmp_path_factory.mktemp("distill")
        (folder / "text").write_bytes(b"the quick brown fox jumps over the lazy dog. " * 40)
        tiny = {f"REFERENCE_TRAINER_{name}": value for name, value in TINY.items()}
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("REFERENCE_TRAINER_", "APR_"))}
        # One thread: several on a busy machine wait for each other at every step.
        return Trainer(folder, {**kept, **tiny, "OMP_NUM_THREADS": "1"})

    return new


@pytest.fixture
def trainer(new_trainer: Callable[[], Trainer]) -> Trainer:
    return new_trainer()


@pytest.fixture
def forked_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the agent of torch fork its ranks from a process that has loaded torch; other tests start interpreters."""
    handler = "torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler"
    monkeypatch.setattr(f"{handler}.Popen", Interpreter)


@pytest.fixture
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Path]]:
    """Mounts file systems of a given number of KiB; skips where mounting isn't allowed."""
    mounted: list[Path] = []

    def mount(kib: int) -> Path:
        place = tmp_path_factory.mktemp("disk")
        command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(place)]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            pytest.skip("there is no mount command")
        if done.returncode:
            pytest.skip(f"a file system can't be mounted here: {done.stderr.strip()}")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)
