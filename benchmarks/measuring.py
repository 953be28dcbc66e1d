"""CPU and wall time of interleaved variants, and the peak of resident memory of one."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

__all__ = ["Taken", "peak_bytes", "taken"]

P = TypeVar("P")


class Taken(NamedTuple):
    """Seconds of one call."""

    cpu: float
    wall: float


def taken(problem: P, variants: Mapping[str, Callable[[P], object]], rounds: int) -> dict[str, list[Taken]]:
    """Return the times of each variant in each round; a first round is not counted."""
    times: dict[str, list[Taken]] = {name: [] for name in variants}
    for _ in range(rounds + 1):
        for name, variant in variants.items():
            cpu, wall = time.process_time(), time.perf_counter()
            variant(problem)
            times[name].append(Taken(time.process_time() - cpu, time.perf_counter() - wall))
    return {name: of_name[1:] for name, of_name in times.items()}


def peak_bytes(problem: P, variant: Callable[[P], object]) -> int:
    """Return by how much a call raises the resident memory of a forked process at its peak."""
    gc.collect()  # what a variant left behind is not part of the next one's memory
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            Path("/proc/self/clear_refs").write_text("5")  # the peak starts again
            before = _status("VmRSS")
            variant(problem)
            os.write(writes, str(_status("VmHWM") - before).encode())
        finally:
            os._exit(0)
    os.close(writes)
    os.waitpid(child, 0)
    with os.fdopen(reads) as answer:
        return int(answer.read())


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{key}:"))
