"""Runs that are killed in the middle of a save: in a fork of this process, before an operation on files."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHANGES = frozenset({"open", "os.rename", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.remove", "os.truncate"})
"""Audit events of operations that can change files; `open` where it is not for reading."""
LIMIT_S = 120.0
FINISHED = 7
"""The exit status of a run that was not killed."""


def killed(run: Callable[[], object], directory: Path, operation: int) -> bool:
    """Run in a fork that is killed before an operation, from 0, on files below a directory; False if it had fewer.

    Raise RuntimeError if the run fails, or does not end.
    """
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
        raise RuntimeError(f"a run in a fork, to be killed before operation {operation}, ended with status {ended}")
    return ended != FINISHED


def _kill_at(directory: Path, operation: int) -> None:
    done, prefix = 0, os.fspath(directory)

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        if event in CHANGES and _is_below(prefix, event, arguments):
            if done == operation:
                os.kill(os.getpid(), signal.SIGKILL)
            done += 1

    sys.addaudithook(count)


def _is_below(prefix: str, event: str, arguments: tuple[Any, ...]) -> bool:
    path = arguments[0]
    if isinstance(path, int) or not os.fsdecode(path).startswith(prefix):
        return False
    return event != "open" or bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))


def _ended(child: int) -> int:
    """Return the exit status of a child, negative for a signal."""
    end = time.monotonic() + LIMIT_S
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(child, signal.SIGTERM)
        time.sleep(0.005)
    return os.waitstatus_to_exitcode(ended[1])
