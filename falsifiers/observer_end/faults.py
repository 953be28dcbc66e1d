"""Wrong versions of public functions: the faults that the contract `observer-end` declares."""

from __future__ import annotations

import sys
from typing import Any


def left_events_kept(original: Any, self: Any, until: float | None = None) -> None:
    """Leave events that were not delivered in the queue, without a word."""
    self.finish()
    self.drain(until or 0.0)


def removed_with_its_events(original: Any, self: Any, callback: Any) -> None:
    """Forget an observer with its events."""
    for each, delivery in self._registered:
        if each is callback and delivery is not None:
            delivery._events.clear()
    original(self, callback)


def nothing_at_exit(original: Any, self: Any, event: Any, context: Any) -> None:
    """Leave the exit of the process to the thread."""
    import atexit

    original(self, event, context)
    atexit.unregister(self.close)


def exit_waits(original: Any, code: int) -> None:
    """End the process as usual."""
    sys.exit(code)


def not_a_number_saved(original: Any, self: Any) -> dict[str, str]:
    """Save NaN as Python's json does by default."""
    import json

    return {name: json.dumps(dict(state)) for name, each in self._named() if (state := each.state_dict())}
