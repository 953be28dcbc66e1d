"""Handle the signals that end a command: SIGINT (Ctrl-C), SIGHUP (a closed terminal), and the signals of schedulers.

Schedulers send SIGTERM, SIGUSR1 and SIGUSR2 (before the time is over), and SIGXCPU (at a limit on CPU time). A command
goes through phases, and calls one function at the beginning of each phase:

1. `exit_at_once`, while modules are imported: a signal ends the process, with one line.
2. `raise_once`: a signal raises `KeyboardInterrupt`, so that files are cleaned up.
3. `record_interrupts`, while a model is trained: a signal is recorded, and `training.loop` saves a checkpoint.
4. `ignore`, at the end: signals are ignored.

With Python's defaults, an interrupt during an import or at the exit prints an unrelated traceback, and a second
interrupt during the cleanup after the first one leaves partial files. A signal that is ignored when the process starts,
for example because of `nohup`, stays ignored.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
"""Exit code of an interrupted run that cannot be resumed: 128 + SIGINT, the convention of shells."""
SAVED = 75
"""Exit code of a run that was interrupted, saved a checkpoint and can be resumed: EX_TEMPFAIL of sysexits.h."""

NOT_WRITTEN = "interrupted; no model was written"
"""Message of a run that was interrupted before it wrote a model."""


class WrittenNote(str):
    """The message of an interrupt that arrived after the model was written; callers test for this type."""


WRITTEN = WrittenNote("the model had been written")
# Signals that warn of a limit. A scheduler may repeat a warning, and the kernel sends SIGXCPU once a second, so only
# the first warning has an effect.
_WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, *_WARNINGS)
# After a signal, further signals are ignored for this time, in seconds, so that they do not interrupt the cleanup. The
# time is limited because Python drops an exception that is raised in a destructor; the user must then interrupt again.
_REPEATED_S = 3.0
# Signals within this time, in seconds, count as one: for one Ctrl-C, a terminal and a launcher may both send a signal.
_SAME_S = 1.0


def exit_at_once() -> None:
    """Let a signal end the process with one line from now on. Call this while there is nothing to clean up."""
    _exchange(signal.default_int_handler, _exit)
    _exchange(signal.SIG_DFL, _exit)


def raise_once() -> None:
    """Let a signal raise `KeyboardInterrupt` from now on, and ignore signals in the 3 s after this signal.

    After the first signal, warnings of schedulers (SIGUSR1, SIGUSR2, SIGXCPU) are ignored without a time limit.
    Only signals for which `exit_at_once` has set a handler are handled.
    """
    _exchange(_exit, _RaiseOnce())


@contextmanager
def record_interrupts() -> Iterator[Callable[[], bool]]:
    """Record signals in this block instead of raising; yield a function that returns whether a signal was received.

    - Signals within 1 s count as one, also when the block ends in that second.
    - A later signal raises `KeyboardInterrupt`, unless it is a warning of a scheduler (SIGUSR1, SIGUSR2, SIGXCPU), or
      all signals before it were warnings.
    - Signals are recorded only if `raise_once` was called before the block.
    - After a signal, no handler of SIGCHLD is called in this block. The handler of a DataLoader would raise for every
      worker that the same signal has killed, also while a checkpoint is written.

    Raises:
        KeyboardInterrupt: A signal was received, and the block ended before the yielded function returned True.
    """
    # Only the signals that `raise_once` handles: an embedding program may have its own handlers.
    recorder = _Recorder()
    before = {
        signal_number: handler
        for signal_number in _SIGNALS
        if isinstance(handler := signal.getsignal(signal_number), _RaiseOnce)
    }
    for number in before:
        signal.signal(number, recorder)
    try:
        yield recorder.poll
    finally:
        for number, handler in before.items():
            handler.quiet_until, handler.is_warned = recorder.quiet_until, handler.is_warned or recorder.is_warned
            signal.signal(number, handler)
        if recorder.child_handler is not None:
            signal.signal(signal.SIGCHLD, recorder.child_handler)
    if recorder.received and not recorder.returned:  # the block did not poll after the signal, which has no effect yet
        for handler in before.values():
            handler.quiet_until = time.monotonic() + _REPEATED_S
        raise KeyboardInterrupt


def ignore() -> None:
    """Ignore the signals for which this module has set a handler from now on."""
    for number in _SIGNALS:
        if signal.getsignal(number) is _exit or isinstance(signal.getsignal(number), _RaiseOnce):
            signal.signal(number, signal.SIG_IGN)


def _exchange(old: object, new: Callable[[int, object], None]) -> None:
    """Set the handler `new` for the signals with the handler `old`; handlers of an embedding program are unchanged."""
    for number in _SIGNALS:
        if signal.getsignal(number) == old:
            signal.signal(number, new)


def _exit(number: int, frame: object) -> None:
    """End the process with one line; a handler of signals."""
    # Use `os.write` and `os._exit`, because a handler may interrupt code that holds the lock of a stream.
    try:
        os.write(2, b"error: interrupted\n")
    finally:
        os._exit(INTERRUPTED)


class _RaiseOnce:
    """A handler that raises `KeyboardInterrupt`, then ignores all signals for 3 s, and warnings of schedulers forever.

    Attributes:
        quiet_until: The time in seconds, of `time.monotonic`, until which signals are ignored.
        is_warned: Whether warnings are ignored.
    """

    def __init__(self) -> None:
        self.quiet_until, self.is_warned = float("-inf"), False

    def __call__(self, number: int, frame: object) -> None:
        now = time.monotonic()
        if now > self.quiet_until and not (number in _WARNINGS and self.is_warned):
            self.quiet_until, self.is_warned = now + _REPEATED_S, True
            raise KeyboardInterrupt


class _Recorder(_RaiseOnce):
    """A handler that records signals.

    Attributes:
        received: Whether a signal was received.
        returned: Whether `poll` has returned True.
        is_interrupted: Whether a signal other than a warning was received; the next such signal raises.
        child_handler: The handler of SIGCHLD before the first signal; None if no signal was received.
    """

    def __init__(self) -> None:
        super().__init__()
        self.received = self.returned = self.is_interrupted = False
        self.child_handler: Callable[[int, FrameType | None], object] | int | None = None

    def poll(self) -> bool:
        """Return whether a signal was received so far, and store the result in `returned`."""
        self.returned = self.received
        return self.returned

    def __call__(self, number: int, frame: object) -> None:
        is_warning = number in _WARNINGS
        # A second signal other than a warning raises, unless less than 1 s has passed since the first one.
        if self.is_interrupted and not is_warning:
            super().__call__(number, frame)
        if not self.received:  # workers of a DataLoader may be killed by the same signal
            self.child_handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if not self.received or (not is_warning and not self.is_interrupted):
            self.quiet_until = time.monotonic() + _SAME_S
        self.received = self.is_warned = True
        self.is_interrupted = self.is_interrupted or not is_warning
