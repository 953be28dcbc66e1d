"""Print the stacks of all threads if a run has had no event for some time."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from reference_trainer.callbacks.base import Callback, Context

RESTART_S = 1.0
"""Smallest number of seconds between two restarts of the timer, because a restart takes about 0.1 ms."""


class WatchdogCallback(Callback):
    """Callback that writes the stack of every thread to standard error after `seconds` without an event.

    The stacks are written at most two seconds late, even if native code holds the interpreter lock. A line with the
    last event is written before, unless the interpreter lock is held. A process that was stopped by a signal writes
    nothing. The timer is `faulthandler.dump_traceback_later`: a process has only one, and it does not survive a fork.

    Args:
        seconds: The number of seconds without an event.
        leave: Whether the process exits with code 1 after the stacks are written, so that a supervisor can start it
            again.
        descriptor: The file descriptor to write to; by default a duplicate of standard error, which `close` closes.
        clock: Returns a time in seconds that never decreases.
        title: The name of the trained model.
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
        self._restarted_at = float("-inf")

    def attach(self, pipeline: object) -> None:
        self._start()

    def on_train_end(self, context: Context) -> None:
        self._stop()

    def close(self) -> None:
        """Stop the timer, also if the run failed before its first event."""
        self._stop()
        if self._is_duplicate:
            os.close(self._descriptor)
            self._is_duplicate = False

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            faulthandler.cancel_dump_traceback_later()
        self._restarted_at = float("-inf")

    def _restart(self, context: Context) -> None:
        self._last = context
        self._start()

    def _start(self) -> None:
        """Restart the timer, unless it was restarted less than `RESTART_S` ago.

        An event may therefore not restart the timer. The timer runs longer than `seconds` by `RESTART_S` or more, so it
        does not end less than `seconds` after such an event.
        """
        # A Python thread writes the line with the last event. `faulthandler` writes the stacks `RESTART_S` later, from
        # C, so that they are written even if the interpreter lock is held.
        now = self._clock()
        if now - self._restarted_at >= RESTART_S:
            if self._timer is not None:
                self._timer.cancel()
            self._restarted_at = now
            self._timer = threading.Timer(self._seconds + RESTART_S, self._write_last_event)
            self._timer.daemon = True
            self._timer.start()
            faulthandler.dump_traceback_later(self._seconds + 2 * RESTART_S, exit=self._leave, file=self._descriptor)

    def _write_last_event(self) -> None:
        last = "its start" if self._last is None else f"{self._last.hook} of step {self._last.step}"
        line = (
            f"--hang-after {self._seconds:g}: no progress of the {self._title} since {last}; the stack of each thread:"
        )
        with suppress(OSError):
            os.write(self._descriptor, f"{line}\n".encode())

    on_train_begin = on_epoch_begin = on_after_backward = on_evaluate = on_save = on_step_end = on_epoch_end = _restart


def _standard_error() -> int:
    """Return a duplicate of standard error, or the null device if standard error is closed.

    If standard error is closed later, its number would belong to the next open file; the duplicate stays valid.
    """
    if sys.__stderr__ is not None:
        with suppress(OSError):
            return os.dup(2)
    return os.open(os.devnull, os.O_WRONLY)
