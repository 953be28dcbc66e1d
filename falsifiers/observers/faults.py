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
    snapshot = original(self)
    for name in ("metrics", "validation_metrics", "batch_metrics"):
        object.__setattr__(snapshot, name, dict(getattr(self, name)))
    return snapshot


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


def every_hook_has_callbacks(self: Any, hook: Any) -> bool:
    return True


def unknown_hook_ignored(original: Any, self: Any, hook: Any, context: Any) -> Any:
    from reference_trainer.plan.schedule import Action, Event

    exists = isinstance(hook, Event) or hook in [event.value for event in Event]
    return original(self, hook, context) if exists else Action.CONTINUE


def unregistered_removal_ignored(original: Any, self: Any, callback: Any) -> None:
    from reference_trainer.errors import CallbackError

    try:
        original(self, callback)
    except CallbackError:
        return


def anything_added(self: Any, callback: Any) -> None:
    return


def callers_callbacks_closed(original: Any, *arguments: Any, callbacks: Any = (), **named: Any) -> Any:
    try:
        return original(*arguments, callbacks=callbacks, **named)
    finally:
        if hasattr(callbacks, "close"):
            callbacks.close()
