"""Heartbeats of ranks: a file each with step and time, by which a supervisor finds a rank that was stopped.

A thread writes it, so a long step is not silence; a stopped process, or one whose native code keeps the interpreter
locked, writes none. Times are those of the machine's monotonic clock, which all of its processes share.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

EVERY_S = 0.5
STOPPED_S = 2.0
"""Age of the beat of a process that SIGSTOP has stopped, before it is killed; SIGCONT may come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """pid, born: the process, and when it was started, so that no other one with its number is meant. step: the last
    one that was taken. time: of this beat, in seconds.
    """

    pid: int
    born: str
    step: int
    time: float


class Heart:
    """The heartbeat of this process in the file `path`; `step` is set by whoever takes the steps."""

    def __init__(self, path: Path) -> None:
        self.step, self._path, self._born = 0, path, _born(os.getpid())
        self.beat()
        threading.Thread(target=self._go_on, name="heartbeat", daemon=True).start()

    def beat(self) -> None:
        """Write the file, atomically. A failure is ignored: a supervisor that reads no beat kills nothing."""
        beat = Beat(pid=os.getpid(), born=self._born, step=self.step, time=time.monotonic())
        partial = self._path.with_name(f".{self._path.name}.{beat.pid}.partial")
        with suppress(OSError):
            partial.write_text(json.dumps(asdict(beat)), encoding="utf-8")
            partial.replace(self._path)

    def _go_on(self) -> None:
        while True:
            time.sleep(EVERY_S)
            self.beat()


def beats(directory: Path) -> list[Beat]:
    """Return the beats in `directory`. A file that is none is ignored."""
    read = []
    for path in sorted(directory.glob("rank-*.json")):
        with suppress(OSError, ValueError, TypeError):
            read.append(Beat(**json.loads(path.read_text(encoding="utf-8"))))
    return read


def silent(read: Iterable[Beat], now: float, after: float) -> list[Beat]:
    """Return the beats that are more than `after` seconds old, and earlier those of stopped processes."""
    return [beat for beat in read if now - beat.time > (min(after, STOPPED_S) if _state(beat.pid) == "T" else after)]


def is_alive(beat: Beat) -> bool:
    """Return whether the process of a beat is there."""
    born = _born(beat.pid)
    return born != "" and born == beat.born and _state(beat.pid) not in ("Z", "X")


def kill_silent(directory: Path, after: float) -> list[Beat]:
    """Kill the ranks that have not written for `after` seconds, and return their last beats."""
    return _killed(silent(beats(directory), time.monotonic(), after))


def kill_stale(directory: Path) -> list[Beat]:
    """Kill the ranks that an earlier supervisor left, and return their last beats; remove all of its files."""
    left = _killed(beats(directory))
    for path in (*directory.glob("rank-*.json"), *directory.glob(".rank-*.partial")):
        path.unlink(missing_ok=True)
    return left


@contextmanager
def watched(directory: Path, after: float, report: Callable[[Beat], object]) -> Iterator[None]:
    """Kill silent ranks while the block runs, each reported once it is killed."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(EVERY_S):
            for beat in kill_silent(directory, after):
                report(beat)

    thread = threading.Thread(target=watch, name="watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _killed(beats: Iterable[Beat]) -> list[Beat]:
    killed = []
    for beat in beats:
        if is_alive(beat):
            with suppress(OSError):
                os.kill(beat.pid, signal.SIGKILL)
                killed.append(beat)
    return killed


def _born(pid: int) -> str:
    """Return the start of a process in ticks of the kernel; empty if there is no such process."""
    fields = _status(pid)
    return fields[19] if fields else ""


def _state(pid: int) -> str:
    """Return the letter of what a process does, T if it was stopped; empty if there is no such process."""
    return (*_status(pid), "")[0]


def _status(pid: int) -> list[str]:
    """Return the fields of a process from its state on; none without such a process, or without /proc."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []
