"""Wrong versions of public functions: the faults that the contract `background-writes` declares."""

from __future__ import annotations

import threading
from typing import Any


def work_in_the_callers_thread(original: Any, self: Any, work: Any, name: str) -> None:
    """Start the work, and wait for it."""
    original(self, work, name)
    for each in threading.enumerate():
        if each.name == name:
            each.join()


def pieces_at_once(self: Any, work: Any, name: str) -> None:
    """Begin at once, whatever is being done; the end waits for the last piece only."""
    self.check()
    self._thread = threading.Thread(target=self._do, args=(work,), name=name)
    self._thread.start()


def daemon_thread(self: Any, work: Any, name: str) -> None:
    """Start a thread that ends with the process."""
    self.wait()
    self._thread = threading.Thread(target=self._do, args=(work,), name=name, daemon=True)
    self._thread.start()


def does_not_wait(self: Any) -> None:
    """Raise what is known by now."""
    self.check()


def error_dropped(original: Any, self: Any) -> None:
    """Forget the error."""
    try:
        original(self)
    except BaseException:
        return


def error_raised_twice(original: Any, self: Any) -> None:
    """Keep the error for the next call."""
    try:
        original(self)
    except BaseException as error:
        self._error = error
        raise


def request_hides_the_error(self: Any, kind: Any, cause: Any, _: Any) -> None:
    """Add the error of the work as a note to whatever ended the block."""
    try:
        self.wait()
    except Exception as error:
        if cause is None:
            raise
        cause.add_note(f"and {error}")


def error_hides_the_cause(self: Any, *given: Any) -> None:
    """Raise the error of the work, whatever ended the block."""
    self.wait()
