"""The protocol of launchers, which start workers, and the environment of every worker."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pv.results.reuse.environment import inherited

MARK = "PV_POOL"
ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # Arrow's allocator, which Hugging Face's datasets load
}
PACKAGE_HOME = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Started:
    task: str
    pid: int


@dataclass(frozen=True, slots=True)
class Ended:
    task: str
    status: int
    """As from os.wait: see os.WIFSIGNALED and os.WEXITSTATUS."""


class Launcher(Protocol):
    """Starts one process per task, reports its start and end, and kills it with all its descendants."""

    note: str
    """The note to the user on how tasks are started, or ""."""

    @property
    def loading(self) -> bool:
        """Whether `ready` would wait."""
        ...

    def ready(self) -> "Launcher":
        """Return what starts the tasks, once it can. Raise WorkerLost if it never can."""
        ...

    def start(self, task: dict[str, Any], evidence_fd: int, output_fd: int) -> None: ...
    def fileno(self) -> int | None: ...
    def events(self) -> list[Started | Ended]: ...
    def kill(self, task: str) -> None: ...
    def close(self) -> None: ...


def environment(mark: str) -> dict[str, str]:
    """Return the environment of every worker: one thread, and `pv` on the path where it is not installed."""
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if PACKAGE_HOME.name not in ("site-packages", "dist-packages"):
        entries.append(str(PACKAGE_HOME))
    return {**inherited(os.environ), **ONE_THREAD, MARK: mark, "PYTHONPATH": os.pathsep.join(entries)}
