"""Wrong versions of public functions: the faults that the contract declares."""

from typing import Any


def events_lost_at_close(self: Any, until: float | None = None) -> None:
    with self._changed:
        self._events.clear()
    self.finish()


def one_snapshot_for_all(self: Any, event: Any, context: Any) -> None:
    if not self._closed:
        with self._changed:
            self._events.append((event, context))
            self._changed.notify_all()
        self._start()


def shallow_snapshot(original: Any, self: Any) -> Any:
    own = original(self)
    for name in ("metrics", "validation_metrics", "batch_metrics"):
        object.__setattr__(own, name, dict(getattr(self, name)))
    return own


def called_at_once(self: Any, event: Any, context: Any) -> None:
    if not self._closed:
        getattr(self.observer, event.value)(context)


def nothing_waited_for(self: Any, until: float) -> bool:
    return True


def event_after_close_delivered(original: Any, self: Any, hook: Any, context: Any) -> Any:
    closed, self._closed = self._closed, False
    try:
        return original(self, hook, context)
    finally:
        self._closed = closed
