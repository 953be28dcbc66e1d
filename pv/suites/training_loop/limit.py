"""Ends a run that does not end by itself."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import SkipTest

FIRST_S, LATER_S = 15.0, 3.0
"""CPU time of a run, until one does not end and after it; the slowest known one needs about a second."""
STUCK_S = 3.0
"""CPU time without a forward of a run that had one."""


class Unfinished(SkipTest):
    """A run that has not ended at its limit: claims that need it are undecided."""


class _Stop(BaseException):
    """Leaves the trainer; not an Exception, so that no handler of it catches it."""


@contextmanager
def limited(unfinished: Path, forwards: Callable[[], int]) -> Iterator[None]:
    """Raise `Unfinished` once the run inside has used up its CPU time, or has had no forward for a while.

    unfinished: exists after the first such run. forwards: how many the run has had.
    """
    if threading.current_thread() is not threading.main_thread():  # only there can a signal interrupt it
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
    """The CPU time of a run, and of the part since its last forward."""

    def __init__(self, limit: float, forwards: Callable[[], int]) -> None:
        self.interval, self._limit, self._forwards = min(1.0, limit), limit, forwards
        self._used = self._still = 0.0
        self._seen = 0

    def __str__(self) -> str:
        still = f", the last {self._still:g} s without a forward" if self._still >= STUCK_S else ""
        return f"{self._used:g} s of CPU time{still}"

    def tick(self, *_: object) -> None:
        """Leave the run if it is over its limit, again and again."""
        count = self._forwards()
        self._used += self.interval
        self._still = self._still + self.interval if count == self._seen else 0.0
        self._seen = count
        if self._used >= self._limit or (count and self._still >= STUCK_S):
            raise _Stop
