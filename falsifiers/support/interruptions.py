"""Interrupt work in a child process at any executed line, by SIGKILL or by an exception.

The child is a fork, so it runs the subject as loaded here, mutants included.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any

LINES_AT_MOST = 5000


class Interrupted(BaseException):
    """The interruption; like KeyboardInterrupt, it is not an `Exception`."""


def kill() -> None:
    """End this process with SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt() -> None:
    """Raise `Interrupted`."""
    raise Interrupted


def at_line(moment: int, act: Callable[[], None], files: Collection[str] = ()) -> None:
    """Call `act` once, before the `moment`-th line that this thread executes from now on, in `files` or anywhere."""
    left = moment

    def look(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if files and frame.f_code.co_filename not in files:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                sys.settrace(None)
                act()
        return look

    sys.settrace(look)


def in_child(work: Callable[[], object], moment: int = 0, act: Callable[[], None] = kill, *files: str) -> str:
    """Run `work` in a fork, interrupted before its `moment`-th line (0: never).

    Return "killed", "interrupted", "done", or the traceback of what it raised.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.write(writing, _ended(work, moment, act, files).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    return "killed" if os.WIFSIGNALED(status) else said


def _ended(work: Callable[[], object], moment: int, act: Callable[[], None], files: Collection[str]) -> str:
    try:
        if moment:
            at_line(moment, act, files)
        work()
    except Interrupted:
        return "interrupted"
    except BaseException:  # the child reports every exception to its parent
        return traceback.format_exc()[-2000:]
    finally:
        sys.settrace(None)
    return "done"
