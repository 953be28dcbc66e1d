"""Acts at a chosen line of a call, work in a child process, and the open descriptors of this process."""

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

LINES_AT_MOST = 5000


class NeverMet(Exception):
    """Raised when a call ended before the requested line."""


def at_line(moment: int, act: Callable[[], None], file: str | None) -> None:
    """Call `act` once, before the `moment`-th line of `file` that this thread executes from now on."""
    left = moment

    def look(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != file:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                sys.settrace(None)
                act()
        return look

    sys.settrace(look)


def in_child(work: Callable[[], object]) -> str:
    """Run `work` in a fork; return "done", or the traceback of what it raised."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.write(writing, _ended(work).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


def _ended(work: Callable[[], object]) -> str:
    try:
        work()
    except BaseException:  # the child reports every exception to its parent
        return traceback.format_exc()[-2000:]
    finally:
        sys.settrace(None)
    return "done"


def held(path: Path) -> list[int]:
    """Return the descriptors of this process open on the path or below it, including deleted files."""
    descriptors = {int(each.name): _place(each) for each in Path("/proc/self/fd").iterdir()}
    return sorted(number for number, place in descriptors.items() if place and place.is_relative_to(path.resolve()))


def _place(descriptor: Path) -> Path | None:
    try:
        return Path(str(descriptor.readlink()).removesuffix(" (deleted)"))
    except OSError:  # the descriptor with which the directory was listed
        return None
