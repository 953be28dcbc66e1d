"""Runs that are killed in the middle of a save: in a fork of this process, at an operation on files."""

import builtins
import io
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import SkipTest

import torch

CHANGES = frozenset({"open", "os.rename", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.remove", "os.truncate"})
"""Audit events of operations that can change files; `open` counts only for writing."""
LIMIT_S, IDLE_S = 120.0, 3.0
"""How long a run may take, and how long it may use no CPU time."""
FINISHED = 7
"""The exit status of a run that was not killed."""


def killed(run: Callable[[], object], directory: Path, operation: int) -> bool:
    """Run in a fork that is killed at an operation, from 0, on files below a directory; False if it had fewer.

    Raise SkipTest if the run fails there, or hangs: the threads that an earlier run has started, as those of a process
    group, are not in the fork.
    """
    # In a fork: the process that runs the other claims must survive.
    child = os.fork()
    if not child:
        status = 1
        try:
            _kill_at(directory, operation)
            run()
            status = FINISHED
        finally:
            os._exit(status)
    ended = _ended(child)
    if ended not in (FINISHED, -signal.SIGKILL):
        outcome = "hangs" if ended is None else f"ends with status {ended}"
        raise SkipTest(
            f"the run is killed in a fork of a process that has run it before, and there it {outcome} by itself"
        )
    return ended != FINISHED


def _kill_at(directory: Path, operation: int) -> None:
    """Kill this process at an operation: before it, once a file is open, or when `torch.save` has written a half."""
    done, prefix = 0, os.fspath(directory)

    def is_due() -> bool:
        nonlocal done
        done += 1
        return done == operation + 1

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        if event in CHANGES and _is_below(prefix, event, arguments) and is_due():
            _kill()

    def save(state: object, file: Any, *arguments: Any, **options: Any) -> None:
        name = file if isinstance(file, os.PathLike) else getattr(file, "name", file)  # a path has a `name`, too
        if isinstance(name, str | os.PathLike) and os.fspath(name).startswith(prefix) and is_due():
            _write_half(state, file)
            _kill()
        whole(state, file, *arguments, **options)

    def opened(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        file_object = plain(file, mode, *arguments, **options)
        changes = isinstance(file, str | os.PathLike) and not {*"wax+"}.isdisjoint(mode)
        if changes and os.fspath(file).startswith(prefix) and is_due():
            _kill()
        return file_object

    # torch.save is replaced in both modules that export it, open in both as well.
    whole, plain = torch.save, open
    vars(torch)["save"] = vars(torch.serialization)["save"] = save
    builtins.open = io.open = opened
    sys.addaudithook(count)


def _write_half(state: object, file: Any) -> None:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    half = buffer.getvalue()[: buffer.tell() // 2]
    if hasattr(file, "write"):
        file.write(half)
        file.flush()
    else:
        Path(file).write_bytes(half)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _is_below(prefix: str, event: str, arguments: tuple[Any, ...]) -> bool:
    path = arguments[0]
    if isinstance(path, int) or not os.fsdecode(path).startswith(prefix):
        return False
    return event != "open" or bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))


def _ended(child: int) -> int | None:
    """Return the exit status of a child, negative for a signal; None for one that hangs, which is killed."""
    began = active = time.monotonic()
    used = -1.0
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        now, before, used = time.monotonic(), used, _used(child)
        # A process that uses no CPU time for 3 s waits for a thread that the fork does not have.
        active = now if used != before else active
        if now - active > IDLE_S or now - began > LIMIT_S:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.005)
    return os.waitstatus_to_exitcode(ended[1])


def _used(process: int) -> float:
    """Return the CPU time of a process in ticks; without /proc the current time, so that it counts as active."""
    try:
        times = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:15]
    except OSError:
        return time.monotonic()
    return float(sum(map(int, times)))
