"""Wrong versions of public functions: the faults that the contract `observers` declares."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any


def events_lost_at_close(self: Any, until: float | None = None) -> None:
    """Forget what waits, and return."""
    with self._changed:
        self._events.clear()
    self.finish()


def newest_first(original: Any, self: Any, event: Any, context: Any) -> None:
    """Queue an event before those that wait."""
    original(self, event, context)
    with self._changed:
        self._events.rotate(1)


def one_snapshot_for_all(self: Any, event: Any, context: Any) -> None:
    """Queue the context of the run itself."""
    if not self._closed:
        with self._changed:
            self._events.append((event, context))
            self._changed.notify_all()
        self._start()


def shallow_snapshot(original: Any, self: Any) -> Any:
    """Copy the context, but share what its mappings hold."""
    own = original(self)
    for name in ("metrics", "validation_metrics", "batch_metrics"):
        object.__setattr__(own, name, dict(getattr(self, name)))
    return own


def called_at_once(self: Any, event: Any, context: Any) -> None:
    """Call the observer in the thread of the run."""
    if not self._closed:
        getattr(self.observer, event.value)(context)


def full_queue_grows(original: Any, self: Any, event: Any, context: Any) -> None:
    """Keep every event."""
    limit, type(self.observer).queue_limit = self.observer.queue_limit, 10**9
    original(self, event, context)
    type(self.observer).queue_limit = limit


def newest_dropped(original: Any, self: Any, event: Any, context: Any) -> None:
    """Drop the event for which there is no room."""
    with self._changed:
        full = len(self._events) >= self.observer.queue_limit
        self.dropped += full
    if not full:
        original(self, event, context)


def drops_uncounted(original: Any, self: Any, event: Any, context: Any) -> None:
    """Drop events without a message."""
    original(self, event, context)
    self.dropped = 0


def nothing_waited_for(self: Any, until: float) -> bool:
    """Return at once."""
    return True


def event_after_close_delivered(original: Any, self: Any, hook: Any, context: Any) -> Any:
    """Go on with the callbacks after close."""
    closed, self._closed = self._closed, False
    try:
        return original(self, hook, context)
    finally:
        self._closed = closed


def settle_does_nothing(self: Any) -> None:
    """Save at once, whatever observers have not taken yet."""


def waits_again(original: Any, self: Any, until: float) -> bool:
    """Wait for a stuck observer each time."""
    self._late = False
    return bool(original(self, until))


def every_hook_has_callbacks(original: Any, self: Any, hook: Any) -> bool:
    """Say that every hook has callbacks."""
    original(self, hook)
    return True


def unknown_hook_ignored(original: Any, hook: Any) -> Any:
    """Treat an unknown hook as one that no callback has."""
    from reference_trainer.training.schedule import Event

    return original(hook) if hook in [*Event, *(event.value for event in Event)] else Event.EVALUATE


def first_of_type_removed(original: Any, self: Any, callback: Any) -> None:
    """Remove the first callback of a type only."""
    if isinstance(callback, type):
        found = (each for each, _ in self._registered if isinstance(each, callback))
        callback = next(found, callback)
    original(self, callback)


def removal_needs_the_type_itself(original: Any, self: Any, callback: Any) -> None:
    """Find no callback by its base class."""
    if isinstance(callback, type):
        for each, _ in list(self._registered):
            if type(each) is callback:
                original(self, each)
    else:
        original(self, callback)


def added_unchecked(self: Any, callback: Any) -> None:
    """Accept anything that is added later."""
    self._registered += ((callback, None),)
    self._sort()


def unknown_removal_ignored(original: Any, self: Any, callback: Any) -> None:
    """Return where nothing is removed."""
    from reference_trainer.errors import CallbackError

    with suppress(CallbackError):
        original(self, callback)


def removed_at_once(original: Any, self: Any, hook: Any, context: Any) -> Any:
    """Walk over the callbacks as they change."""
    from reference_trainer.training.schedule import Action

    called = 0
    while called < len(self._registered):
        callback, _ = self._registered[called]
        getattr(callback, hook)(context)
        called += 1
    return Action.CONTINUE


def observers_called_last(self: Any, hook: Any, context: Any) -> Any:
    """Call the control callbacks first."""
    from reference_trainer.training.callbacks import call_hooks, event_of

    controls, observers = self._heard[event_of(hook)]
    answer = call_hooks(controls, event_of(hook), context)
    for each in observers:
        each.put(event_of(hook), context)
    return answer


def observer_answers(original: Any, self: Any, hook: Any, context: Any) -> Any:
    """Ask observers for an answer too."""
    from reference_trainer.training.callbacks import call_hooks, event_of

    watching = [each.observer for each in self._heard[event_of(hook)][1]]
    return max(original(self, hook, context), call_hooks(watching, event_of(hook), context))


def attempt_lost(original: Any, self: Any) -> Any:
    """Say that every attempt is the first."""
    return replace(original(self), attempt=1)
