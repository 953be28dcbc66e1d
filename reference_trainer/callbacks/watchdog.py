"""Watchdog of a run: the stack of every thread, once no step has ended for some time."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from reference_trainer.callbacks.base import Callback, Context

REARMED_S = 1.0
"""Arming costs about 0.1 ms, so it is not done in every step."""


class WatchdogCallback(Callback):
    """Callback that writes the stack of every thread to standard error once no event has come for `seconds`.

    It does so within two seconds after that, also while native code keeps the interpreter locked; a process that was
    stopped writes nothing. A line with the last event precedes the stacks, unless the interpreter is locked. With
    `leave` the process then ends at once, with exit code 1, so that a supervisor tries again. The timer is that of
    `faulthandler`, of which a process has one; it does not survive a fork. descriptor: where it writes, by default a
    duplicate of standard error, which `close` closes. title: what is trained.
    """

    _timer: threading.Timer | None = None  # writes the line with the last event
    _last: Context | None = None

    def __init__(
        self,
        seconds: float,
        *,
        leave: bool = True,
        descriptor: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        title: str = "student",
    ) -> None:
        self._seconds, self._leave, self._clock, self._title = seconds, leave, clock, title
        self._descriptor = _standard_error() if descriptor is None else descriptor
        self._is_duplicate = descriptor is None
        self._armed = float("-inf")

    def attach(self, pipeline: object) -> None:
        self._start()

    def on_train_end(self, context: Context) -> None:
        self._stop()

    def close(self) -> None:
        """End the timer, also of a run that failed before its first event."""
        self._stop()
        if self._is_duplicate:
            os.close(self._descriptor)
            self._is_duplicate = False

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            faulthandler.cancel_dump_traceback_later()
        self._armed = float("-inf")

    def _arm(self, context: Context) -> None:
        self._last = context
        self._start()

    def _start(self) -> None:
        """Start the timer again. It runs longer by the time in which it is not started again, so it is never early."""
        now = self._clock()
        if now - self._armed >= REARMED_S:
            if self._timer is not None:
                self._timer.cancel()
            self._armed = now
            self._timer = threading.Timer(self._seconds + REARMED_S, self._write_last_event)
            self._timer.daemon = True
            self._timer.start()
            faulthandler.dump_traceback_later(self._seconds + 2 * REARMED_S, exit=self._leave, file=self._descriptor)

    def _write_last_event(self) -> None:
        last = "its start" if self._last is None else f"{self._last.hook} of step {self._last.step}"
        line = (
            f"--hang-after {self._seconds:g}: no progress of the {self._title} since {last}; the stack of each thread:"
        )
        with suppress(OSError):
            os.write(self._descriptor, f"{line}\n".encode())

    on_train_begin = on_epoch_begin = on_after_backward = on_evaluate = on_save = on_step_end = on_epoch_end = _arm


def _standard_error() -> int:
    """Return a duplicate: the number of a closed descriptor is given to the next file that is opened."""
    if sys.__stderr__ is not None:
        with suppress(OSError):
            return os.dup(2)
    return os.open(os.devnull, os.O_WRONLY)
