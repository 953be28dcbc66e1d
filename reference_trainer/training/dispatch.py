"""The callbacks of a run together: who hears an event, the calls, and the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reference_trainer.errors import CallbackError
from reference_trainer.training.callbacks import Callback, call_hooks, call_train_end, checked, event_of, has_hook
from reference_trainer.training.context import Context
from reference_trainer.training.schedule import Action, Event

__all__ = ["Callbacks"]


class Callbacks:
    """Callbacks in the order of registration. Those that are added or removed during a run count from the next event.

    Raise `CallbackError` for what `checked` refuses.
    """

    def __init__(self, callbacks: Iterable[Callback] = ()) -> None:
        self._registered = checked(callbacks)
        self._closed = False
        self._sort()

    def add(self, callback: Callback) -> None:
        """Register one more callback, after the others."""
        self._registered += checked((*self._registered, callback))[-1:]
        self._sort()

    def remove(self, callback: Callback | type[Callback]) -> None:
        """Remove an instance, or every instance of a type. Raise `CallbackError` if there is none."""
        is_type = isinstance(callback, type)
        kept = tuple(
            each
            for each in self._registered
            if (not isinstance(each, callback) if isinstance(callback, type) else each is not callback)
        )
        if len(kept) == len(self._registered):
            name = f"of type {callback.__name__}" if is_type else repr(callback)  # type: ignore[union-attr]
            raise CallbackError(f"no callback {name} is registered")
        self._registered = kept
        self._sort()

    def has_callbacks(self, hook: Event | str) -> bool:
        """Return whether a callback overrides the hook. Raise `CallbackError` for an unknown one."""
        return bool(self._heard[event_of(hook)]) and not self._closed

    def fire(self, hook: Event | str, context: Context) -> Action:
        """Call the hook on every callback that overrides it, and return the strongest answer; nothing once closed."""
        event = event_of(hook)
        if self._closed:
            return Action.CONTINUE
        return call_hooks(self._heard[event], event, context)

    def end(self, context: Context, cause: BaseException | None) -> None:
        """Call `on_train_end` as `call_train_end` does."""
        call_train_end(self._heard[Event.TRAIN_END], context, cause)

    def close(self) -> None:
        """Call nothing from now on."""
        self._closed = True

    def _sort(self) -> None:
        self._heard: dict[Any, tuple[Callback, ...]] = {
            event: tuple(each for each in self._registered if has_hook(each, event)) for event in Event
        }
