"""Stops a run that does not end, by a timer of CPU time: busy cores do not change the result."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import SkipTest

FIRST_S, LATER_S = 15.0, 3.0
"""CPU time in seconds that a run may take, and that later runs may take once one has not ended.

The slowest known loop needs about a second.
"""
STUCK_S = 3.0
"""CPU time in seconds that a run may take without a forward, after its first one."""


class Unfinished(SkipTest):
    """A run that had not ended at its limit: claims that need the run are undecided."""


class _Stop(BaseException):
    """Unwinds the trainer. It is no Exception, so that no handler of the trainer catches it."""


@contextmanager
def limited(unfinished: Path, forwards: Callable[[], int]) -> Iterator[None]:
    """Limit the CPU time of the run inside, in all and since its last forward.

    Args:
        unfinished: A file that exists once a run has not ended; later runs then have less time.
        forwards: Returns the number of forwards of the run so far.

    Raises:
        Unfinished: The run has reached a limit.
    """
    # A signal interrupts the main thread only: in other threads the limit of the worker must do.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    clock = _Clock(LATER_S if unfinished.exists() else FIRST_S, forwards)
    before = signal.signal(signal.SIGPROF, clock.tick)
    signal.setitimer(signal.ITIMER_PROF, clock.interval, clock.interval)
    try:
        yield
    except _Stop:
        unfinished.touch()
        raise Unfinished(f"the run does not end: it was stopped after {clock}") from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


class _Clock:
    """The CPU time of a run, in all and since its last forward."""

    def __init__(self, limit: float, forwards: Callable[[], int]) -> None:
        self.interval, self._limit, self._forwards = min(1.0, limit), limit, forwards
        self._used = self._still = 0.0
        self._seen = 0

    def __str__(self) -> str:
        still = f", the last {self._still:g} s without a forward" if self._still >= STUCK_S else ""
        return f"{self._used:g} s of CPU time{still}"

    def tick(self, *_: object) -> None:
        """Raise `_Stop` in the run if it is over its limit; again at each tick, in case the trainer catches it."""
        count = self._forwards()
        self._used += self.interval
        self._still = self._still + self.interval if count == self._seen else 0.0
        self._seen = count
        if self._used >= self._limit or (count and self._still >= STUCK_S):
            raise _Stop
