"""Interrupt work at any executed line or before any operation on a file, by SIGKILL or by an exception.

The child is a fork, so it runs the subject as loaded here, mutants included.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

LINES_AT_MOST = 5000
OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
"""Python's audit events of the calls that create, open, rename or remove a file or a directory."""


class Interrupted(BaseException):
    """The interruption; like KeyboardInterrupt, it is not an `Exception`."""


def kill() -> None:
    """End this process with SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt() -> None:
    """Raise `Interrupted`."""
    raise Interrupted


def at_line(moment: int, act: Callable[[], None], files: Collection[str] = ()) -> None:
    """Call `act` once, before the `moment`-th line, from 1, that this thread executes in `files`; () for any file."""
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
    """Run `work` in a fork, and interrupt it before a line.

    Args:
        work: The function.
        moment: The number of the line, from 1, before which `act` is called; 0 for no interruption.
        act: `kill` or `interrupt`.
        files: The files whose lines count; none for all files.

    Returns:
        "killed", "interrupted", "done", or the traceback of the exception that `work` raised.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.write(writing, _ended(work, moment, act, files).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        outcome = pipe.read()
    _, status = os.waitpid(pid, 0)
    return "killed" if os.WIFSIGNALED(status) else outcome


def _ended(work: Callable[[], object], moment: int, act: Callable[[], None], files: Collection[str]) -> str:
    """Run `work` in this process, and return how it ended, as `in_child` does."""
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


def ended_before(moment: int, below: Path, work: Callable[[], object], act: Callable[[], None] = kill) -> str:
    """Run `work` in a fork in which `act` ends it before its `moment`-th operation below a directory, from 1."""

    def interrupted() -> None:
        with before_operations(below, lambda count: act() if count == moment else None):
            work()

    return in_child(interrupted)


_watching: list[Callable[[str], None]] = []
"""The functions to call before each operation. An audit hook cannot be removed, so one hook reads this list."""
_hooked: list[bool] = []


@contextmanager
def before_operations(below: Path, act: Callable[[int], None]) -> Iterator[None]:
    """Call act(k) before the k-th operation, from 1, on a file or directory below `below`."""
    count = 0

    def look(path: str) -> None:
        nonlocal count
        if Path(path).is_relative_to(below):
            count += 1
            act(count)

    if not _hooked:
        sys.addaudithook(_report)
        _hooked.append(True)
    _watching.append(look)
    try:
        yield
    finally:
        _watching.remove(look)


def _report(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event in OPERATIONS and isinstance(arguments[0], str | bytes | os.PathLike):
        for look in list(_watching):
            look(os.fsdecode(arguments[0]))
