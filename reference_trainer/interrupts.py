"""Handling of the signals that end a command, in each of its phases.

They are SIGINT (Ctrl-C), SIGHUP (a closed terminal), and those of schedulers: SIGTERM, SIGUSR1 and SIGUSR2 (before the
time is over), and SIGXCPU (at a limit on CPU time).

With Python's defaults, an interrupt during an import or at the exit prints an unrelated traceback, and a second one
during the cleanup of the first leaves partial files. A signal that is ignored from the start, as by `nohup`, stays
ignored.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

INTERRUPTED = 130
SAVED = 75
"""Exit code of a run that was interrupted, saved a checkpoint and can be resumed: EX_TEMPFAIL of sysexits.h."""

NOT_WRITTEN = "interrupted; no model was written"


class WrittenNote(str):
    """A note on an interrupt that came after the model was written. Programs recognise it by its type."""


WRITTEN = WrittenNote("the model had been written")
# A scheduler may repeat these warnings, the kernel sends SIGXCPU once a second: only the first has an effect.
_WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, *_WARNINGS)
# Long enough for the cleanup. Not forever: Python drops an exception that is raised in a destructor, and then the user
# has to interrupt again.
_REPEATED_S = 3.0
# A terminal and a launcher may both send a signal.
_SAME_S = 1.0


def exit_at_once() -> None:
    """From now on, exit the process with one line at an interrupt. For the time before anything needs a cleanup."""
    _exchange(signal.default_int_handler, _exit)
    _exchange(signal.SIG_DFL, _exit)


def raise_once() -> None:
    """From now on, raise `KeyboardInterrupt` at an interrupt; ignore those within 3 s after it."""
    _exchange(_exit, _Once())


@contextmanager
def record_interrupts() -> Iterator[Callable[[], bool]]:
    """Only note an interrupt in this block; the yielded function returns whether there was one.

    Interrupts within 1 s count as one, also when the block ends in that second; a later one raises
    `KeyboardInterrupt`, unless it or all before it are warnings of a scheduler, and so does the end of the block after
    an interrupt that the function has not returned. Nothing is noted unless `raise_once` was called before. After an
    interrupt, no handler of SIGCHLD is called in this block: that of a DataLoader raises for each worker that the
    signal has killed, too, also while a checkpoint is written.
    """
    note = _Note()
    before = {
        signal_number: handler
        for signal_number in _NUMBERS
        if isinstance(handler := signal.getsignal(signal_number), _Once)
    }
    for number in before:
        signal.signal(number, note)
    try:
        yield note.poll
    finally:
        for number, handler in before.items():
            handler.quiet_until, handler.is_warned = note.quiet_until, handler.is_warned or note.is_warned
            signal.signal(number, handler)
        if note.of_children is not None:
            signal.signal(signal.SIGCHLD, note.of_children)
    if note.received and not note.returned:
        for handler in before.values():
            handler.quiet_until = time.monotonic() + _REPEATED_S
        raise KeyboardInterrupt


def ignore() -> None:
    """From now on, ignore interrupts."""
    for number in _NUMBERS:
        if signal.getsignal(number) is _exit or isinstance(signal.getsignal(number), _Once):
            signal.signal(number, signal.SIG_IGN)


def _exchange(old: object, new: Callable[[int, object], None]) -> None:
    """Replace only the handler `old`, so that the handlers of an embedding program stay."""
    for number in _NUMBERS:
        if signal.getsignal(number) == old:
            signal.signal(number, new)


def _exit(number: int, frame: object) -> None:
    try:
        os.write(2, b"error: interrupted\n")
    finally:
        os._exit(INTERRUPTED)


class _Once:
    def __init__(self) -> None:
        self.quiet_until, self.is_warned = float("-inf"), False

    def __call__(self, number: int, frame: object) -> None:
        now = time.monotonic()
        if now > self.quiet_until and not (number in _WARNINGS and self.is_warned):
            self.quiet_until, self.is_warned = now + _REPEATED_S, True
            raise KeyboardInterrupt


class _Note(_Once):
    def __init__(self) -> None:
        super().__init__()
        self.received = self.returned = self.insisted = False
        self.of_children: Any = None

    def poll(self) -> bool:
        self.returned = self.received
        return self.returned

    def __call__(self, number: int, frame: object) -> None:
        is_warning = number in _WARNINGS
        if self.insisted and not is_warning:
            super().__call__(number, frame)
        if not self.received:
            self.of_children = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if not self.received or (not is_warning and not self.insisted):
            self.quiet_until = time.monotonic() + _SAME_S
        self.received = self.is_warned = True
        self.insisted = self.insisted or not is_warning
