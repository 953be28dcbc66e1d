"""The callbacks of a run together: which of them have a hook, the calls, and the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from reference_trainer.callbacks.base import Callback, call_hooks, call_train_end, checked, event_of, has_hook
from reference_trainer.callbacks.context import Context
from reference_trainer.callbacks.observers import WAIT_S, Delivery, Observer, close_all, drain_all
from reference_trainer.errors import CallbackError
from reference_trainer.plan.schedule import Action, Event

__all__ = ["Callbacks"]


class Callbacks:
    """Callbacks in the order of registration. Those that are added or removed during a run count from the next event.

    wait_s: seconds that a checkpoint and the end of the run wait for all observers together. Raise `CallbackError` for
    what `checked` refuses.
    """

    def __init__(self, callbacks: Iterable[Callback] = (), *, wait_s: float = WAIT_S) -> None:
        self._wait_s = wait_s
        self._registered = tuple((callback, _delivery(callback)) for callback in checked(callbacks))
        self._removed: tuple[Delivery, ...] = ()
        self._closed = False
        self._sort()

    def add(self, callback: Callback) -> None:
        """Register one more callback, after the others."""
        checked([*(present for present, _ in self._registered), callback])
        self._registered += ((callback, _delivery(callback)),)
        self._sort()

    def remove(self, callback: Callback | type[Callback]) -> None:
        """Remove an instance, or every instance of a type. Raise `CallbackError` if there is none.

        An observer gets the events that came before.
        """
        gone = [pair for pair in self._registered if _matches(pair[0], callback)]
        if not gone:
            name = callback.__name__ if isinstance(callback, type) else type(callback).__name__
            raise CallbackError(f"no callback {name} is registered; expected one of {self._names() or 'none'}")
        self._registered = tuple(pair for pair in self._registered if pair not in gone)
        for _, delivery in gone:
            if delivery is not None:
                delivery.finish()
                self._removed += (delivery,)
        self._sort()

    def has_callbacks(self, hook: Event | str) -> bool:
        """Return whether a callback overrides the hook. Raise `CallbackError` for an unknown one."""
        controls, observers = self._heard[event_of(hook)]
        return not self._closed and bool(controls or observers)

    def fire(self, hook: Event | str, context: Context) -> Action:
        """Call the hook on every callback that overrides it, and return the strongest answer; nothing once closed.

        Observers get their copies first, so that an exception of a control callback loses no event.
        """
        controls, observers = self._heard[event_of(hook)]
        if self._closed:
            return Action.CONTINUE
        for delivery in observers:
            delivery.put(event_of(hook), context)
        return call_hooks(controls, event_of(hook), context)

    def end(self, context: Context, cause: BaseException | None) -> None:
        """Call `on_train_end` as `call_train_end` does, and wait for the observers."""
        controls, observers = self._heard[Event.TRAIN_END]
        try:
            call_train_end((*observers, *controls), context, cause)
        finally:
            self.settle()

    def settle(self) -> None:
        """Wait until the observers have taken every event so far: a checkpoint is made after them."""
        drain_all(self._deliveries(), self._wait_s)

    def states(self) -> dict[str, str]:
        """Return the states of the control callbacks that have one, as JSON, by class and number of the instance.

        Raise `CallbackError` for a state that JSON cannot hold.
        """
        every = {name: _json_state(callback) for name, callback in self._named()}
        return {name: state for name, state in every.items() if state is not None}

    def restore(self, states: Mapping[str, str]) -> None:
        """Give the states back to the callbacks that `states` had them of; one that is new keeps its own."""
        for name, callback in self._named():
            if name in states:
                callback.load_state_dict(json.loads(states[name]))

    def _named(self) -> Iterator[tuple[str, Callback]]:
        seen: Counter[str] = Counter()
        for callback, delivery in self._registered:
            name = type(callback).__qualname__
            seen[name] += 1
            if delivery is None:
                yield f"{name} {seen[name]}", callback

    def close(self) -> None:
        """Deliver what observers have not taken yet, within the wait, and call nothing from now on; idempotent."""
        if not self._closed:
            self._closed = True
            close_all(self._deliveries(), self._wait_s)

    def _deliveries(self) -> list[Delivery]:
        return [*self._removed, *(delivery for _, delivery in self._registered if delivery is not None)]

    def _names(self) -> str:
        return ", ".join(type(callback).__name__ for callback, _ in self._registered)

    def _sort(self) -> None:
        self._heard = {event: self._hearing(event) for event in Event}

    def _hearing(self, event: Event) -> tuple[tuple[Callback, ...], tuple[Delivery, ...]]:
        heard = [pair for pair in self._registered if has_hook(pair[0], event)]
        controls = tuple(callback for callback, delivery in heard if delivery is None)
        return controls, tuple(delivery for _, delivery in heard if delivery is not None)


def _delivery(callback: Callback) -> Delivery | None:
    return Delivery(callback) if isinstance(callback, Observer) else None


def _json_state(callback: Callback) -> str | None:
    state = callback.state_dict()
    try:
        return json.dumps(dict(state), allow_nan=False) if state else None
    except (TypeError, ValueError) as error:
        name = f"{type(callback).__name__}.state_dict"
        raise CallbackError(f"{name} returned {state!r}; expected values that JSON can hold: {error}") from error


def _matches(callback: Callback, wanted: Callback | type[Callback]) -> bool:
    return isinstance(callback, wanted) if isinstance(wanted, type) else callback is wanted
