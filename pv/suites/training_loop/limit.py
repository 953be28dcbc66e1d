"""Ends a run that does not end by itself."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn
from unittest import SkipTest

FIRST_S, LATER_S = 15.0, 3.0
"""CPU time of a run, until one does not end and after it; the slowest known one needs about a second."""


class Unfinished(SkipTest):
    """A run that has not ended at its limit: claims that need it are undecided."""


class _Stop(BaseException):
    """Leaves the trainer; not an Exception, so that no handler of it catches it."""


@contextmanager
def limited(unfinished: Path) -> Iterator[None]:
    """Raise `Unfinished` once the run inside has used up its CPU time. unfinished: exists after the first such run."""
    seconds = LATER_S if unfinished.exists() else FIRST_S
    if threading.current_thread() is not threading.main_thread():  # only there can a signal interrupt it
        yield
        return
    before = signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        yield
    except _Stop:
        unfinished.touch()
        raise Unfinished(f"the run does not end: it was stopped after {seconds:g} s of CPU time") from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def _stop(*_: object) -> NoReturn:
    raise _Stop
