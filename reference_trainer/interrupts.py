"""Ctrl-C, the SIGTERM of a scheduler, and the SIGHUP of a terminal that is closed: what they do at which time.

Left to Python, an interrupt during an import or at the exit shows a traceback of somebody else's code, and a second one
while the first cleans up leaves half files behind. A signal that is ignored from the start, as by `nohup`, stays so.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

__all__ = ["INTERRUPTED", "SAID", "WRITTEN", "clean_up_first", "ignore", "leave_at_once"]

INTERRUPTED = 130
SAID = "interrupted; no model was written"
WRITTEN = "the model had been written"
_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Long enough for what is cleaned up. Not for ever: Python drops an exception that is raised in a destructor, and then
# the interrupt has to be said again.
_DEAF_S = 3.0


def leave_at_once() -> None:
    """From now on an interrupt ends the process in one line: nothing was made yet that would have to go."""
    _exchange(signal.default_int_handler, _leave)
    _exchange(signal.SIG_DFL, _leave)


def clean_up_first() -> None:
    """From now on an interrupt is a KeyboardInterrupt; those that follow soon are the same one."""
    _exchange(_leave, _Once())


def ignore() -> None:
    """From now on an interrupt comes too late."""
    for number in _NUMBERS:
        if signal.getsignal(number) is _leave or isinstance(signal.getsignal(number), _Once):
            signal.signal(number, signal.SIG_IGN)


def _exchange(old: Any, new: Callable[[int, Any], None]) -> None:
    """In a process whose signals another program handles, nothing changes."""
    for number in _NUMBERS:
        if signal.getsignal(number) == old:
            signal.signal(number, new)


def _leave(number: int, frame: Any) -> None:
    try:
        os.write(2, b"error: interrupted\n")
    finally:
        os._exit(INTERRUPTED)


class _Once:
    def __init__(self) -> None:
        self._heard = float("-inf")

    def __call__(self, number: int, frame: Any) -> None:
        now = time.monotonic()
        if now - self._heard > _DEAF_S:
            self._heard = now
            raise KeyboardInterrupt
