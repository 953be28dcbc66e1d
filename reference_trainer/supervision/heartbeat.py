"""Files that ranks write for their supervisor: a heartbeat while a rank runs, and the error that ended the rank.

The supervisor locks one directory for these files. A thread of the rank writes the heartbeat, with step and time, so a
rank is not silent during a long step. A process that is stopped, or whose native code holds the interpreter lock,
writes no heartbeat, and is killed. Times are read from the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from reference_trainer.errors import OutputError
from reference_trainer.storage.files import partial_path

EVERY_S = 0.5
"""Seconds between two heartbeats, and between two checks of all heartbeats."""
STOPPED_S = 2.0
"""Seconds without a heartbeat after which a process that SIGSTOP has stopped is killed, unless SIGCONT comes before."""
SAVED = "saved"
"""Name of the file that a rank writes when it has saved a checkpoint and exits on request.

The supervisor needs this file, because the agent of torch reports no exit code after a signal."""

Content = TypeVar("Content")


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """The last heartbeat of a process.

    Attributes:
        pid: The process id.
        born: The start time of the process, which a later process with the same id does not share.
        step: The last step taken.
        time: The time of the beat on the monotonic clock of the machine, in seconds.
    """

    pid: int
    born: str
    step: int
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The error that ended a rank.

    Attributes:
        step: The last step that was taken, 0 before the first.
        type: The class of the error.
        message: The message of the error.
        is_input: Whether the settings or the input caused the error, so that another attempt would fail too.
        is_of_other_rank: Whether another rank failed first.
    """

    step: int
    type: str
    message: str
    is_input: bool
    is_of_other_rank: bool


class Heart:
    """Writes the heartbeat of this process to the file `path`, in a thread.

    Attributes:
        step: The last step taken; the training sets this attribute.
    """

    def __init__(self, path: Path) -> None:
        self.step, self._path, self._born = 0, path, _born(os.getpid())
        self.beat()
        threading.Thread(target=self._beat_forever, name="heartbeat", daemon=True).start()

    def beat(self) -> None:
        """Write the file atomically. Ignore failures: the supervisor kills no rank that has never written a beat."""
        self._write(self._path, Beat(pid=os.getpid(), born=self._born, step=self.step, time=time.monotonic()))

    def fail(self, failure: Failure) -> None:
        """Write the error that ends this process. Ignore failures: the supervisor then knows only the exit code."""
        self._write(self._path.with_name(f"failure-{self._path.name}"), failure)

    @staticmethod
    def _write(path: Path, content: Beat | Failure) -> None:
        partial = partial_path(path)  # not `atomic_write`, which would wait for the disk
        with suppress(OSError):
            partial.write_text(json.dumps(asdict(content)), encoding="utf-8")
            partial.replace(path)

    def _beat_forever(self) -> None:
        """Write a heartbeat every `EVERY_S` seconds; the loop of the thread."""
        while True:
            time.sleep(EVERY_S)
            self.beat()


def beats(directory: Path) -> list[Beat]:
    """Return the beats in `directory`. Invalid files are ignored."""
    return _read(directory, "rank-*.json", Beat)


def first_failure(directory: Path) -> Failure | None:
    """Return the error that ended the ranks; None if no rank has written an error.

    Among several errors, an error of settings or input has priority, and an error that reports the failure of another
    rank comes last.
    """
    failures = _read(directory, "failure-rank-*.json", Failure)
    return min(failures, key=lambda failure: (not failure.is_input, failure.is_of_other_rank), default=None)


def _read(directory: Path, pattern: str, kind: Callable[..., Content]) -> list[Content]:
    """Return the contents of the files that match a pattern; ignore invalid files."""
    contents = []
    for path in sorted(directory.glob(pattern)):
        with suppress(OSError, ValueError, TypeError):
            contents.append(kind(**json.loads(path.read_text(encoding="utf-8"))))
    return contents


def silent_beats(last_beats: Iterable[Beat], now: float, after: float) -> list[Beat]:
    """Return the beats that are older than `after` seconds; for a stopped process, older than `STOPPED_S` at most."""
    silent = []
    for beat in last_beats:
        limit_s = min(after, STOPPED_S) if _state(beat.pid) == "T" else after
        if now - beat.time > limit_s:
            silent.append(beat)
    return silent


def is_alive(beat: Beat) -> bool:
    """Return whether the process of a beat exists."""
    born = _born(beat.pid)
    return born != "" and born == beat.born and _state(beat.pid) not in ("Z", "X")


def kill_silent(directory: Path, after: float) -> list[Beat]:
    """Kill the ranks of `silent_beats` at the present time, and return their last beats."""
    return _kill(silent_beats(beats(directory), time.monotonic(), after))


def kill_ranks(directory: Path) -> list[Beat]:
    """Kill all ranks that have written a beat, and return their last beats."""
    return _kill(beats(directory))


def kill_stale(directory: Path) -> list[Beat]:
    """Kill the ranks of an earlier supervisor, and return their last beats; remove all files of that supervisor."""
    killed = kill_ranks(directory)
    for pattern in ("rank-*.json", "failure-rank-*.json", ".*rank-*.partial", SAVED):
        for path in directory.glob(pattern):
            path.unlink(missing_ok=True)
    return killed


@contextmanager
def claim_directory(directory: Path, taken: str) -> Iterator[Path]:
    """Create and lock a directory of a supervisor. At the end, kill the remaining ranks, and remove the directory.

    Raise `OutputError` if the directory cannot be locked. `taken` is the message if another supervisor has locked it.
    """
    descriptor = None
    try:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputError(taken) from error
        except OSError as error:
            raise OutputError(f"cannot lock {directory}: {error.strerror}; choose another --out") from error
        try:
            yield directory
        finally:
            kill_stale(directory)
            with suppress(OSError):  # the directory may have a file of the user
                directory.rmdir()
    finally:
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def call_periodically(function: Callable[[], object], every_s: float) -> Iterator[None]:
    """Call `function` every `every_s` seconds in a thread while the block runs."""
    ended = threading.Event()

    def call_until_end() -> None:
        while not ended.wait(every_s):
            function()

    thread = threading.Thread(target=call_until_end, name=function.__name__, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def watch_ranks(directory: Path, after: float, report: Callable[[Beat], object]) -> Iterator[None]:
    """Kill silent ranks while the block runs, and call `report` with the last beat of every killed rank."""

    def watch() -> None:
        for beat in kill_silent(directory, after):
            report(beat)

    with call_periodically(watch, EVERY_S):
        yield


def _kill(beats: Iterable[Beat]) -> list[Beat]:
    """Kill those processes of `beats` that are alive, and return their beats."""
    killed = []
    for beat in beats:
        if is_alive(beat):
            with suppress(OSError):
                os.kill(beat.pid, signal.SIGKILL)
                killed.append(beat)
    return killed


def _born(pid: int) -> str:
    """Return the start time of a process in clock ticks after boot; empty if there is no such process."""
    fields = _status(pid)
    return fields[19] if fields else ""  # field 22 of /proc/PID/stat; `_status` omits the first two


def _state(pid: int) -> str:
    """Return the state letter of a process, T if it was stopped; empty if there is no such process."""
    fields = _status(pid)
    return fields[0] if fields else ""


def _status(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat, beginning with the state; [] without such a process or without /proc."""
    # The field before the state, the name of the program in parentheses, may contain spaces and parentheses.
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []
