"""Wrong versions of public functions: the faults that the contract `observer-end` declares."""

from __future__ import annotations

import atexit
import json
import sys
from typing import Any
from unittest import mock


def left_events_kept(original: Any, self: Any, until: float | None = None) -> None:
    """Leave events that were not delivered in the queue, without a word."""
    self.finish()
    self.drain(until or 0.0)


def closed_observer_kept(original: Any, self: Any, until: float | None = None) -> None:
    """Leave a call for the exit of the process."""
    original(self, until)
    atexit.register(original, self)


def removed_without_a_wait(original: Any, self: Any, callback: Any) -> None:
    """Wait for no observer once one was removed."""
    original(self, callback)
    self.settle = lambda: None


def nothing_at_exit(original: Any, self: Any, event: Any, context: Any) -> None:
    """Leave the exit of the process to the thread."""
    original(self, event, context)
    atexit.unregister(self.close)


def exit_waits(original: Any, code: int) -> None:
    """End the process as usual."""
    sys.exit(code)


def not_a_number_saved(original: Any, self: Any) -> dict[str, str]:
    """Save NaN as Python's json does by default."""
    dumps = json.dumps
    with mock.patch.object(json, "dumps", lambda state, **options: dumps(state)):
        saved: dict[str, str] = original(self)
        return saved
