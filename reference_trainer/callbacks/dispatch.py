"""Call the registered callbacks of a run.

Control callbacks are called in the thread of the training loop. Every observer is called in its own thread, and can
neither change nor end the run.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple, NoReturn

from reference_trainer.callbacks.base import (
    Callback,
    Context,
    as_callbacks,
    call_hooks,
    call_train_end,
    event_of,
    has_hook,
)
from reference_trainer.errors import CallbackError
from reference_trainer.plan.schedule import Action, Event

WAIT_S = 10.0
"""Seconds that a run waits for all its observers together, at a checkpoint and at its end."""
_LOG = logging.getLogger("reference_trainer.observers")
_stuck: list[Delivery] = []
"""Deliveries that were closed while a hook of their observer was running."""


class Observer(Callback):
    """Base class of observers: override the hooks you need. Return values are ignored.

    The hooks of an observer are called in the order of the events, on its own thread. Every hook gets a deep copy of
    the context, with all values read from the device: on a GPU, an observer of `on_step_end` waits once for the device
    in every step, an observer of `on_log` never. Exceptions are logged, and the run continues. An observer that waits
    for input or output does not delay the run. An observer that computes in Python competes with the training for the
    interpreter lock.

    Before it saves a checkpoint, and at its end, the run waits at most 10 s until the observers have processed all
    earlier events. If an observer needs longer, the run no longer waits for this observer. Unless events are dropped, a
    run that is killed and resumed delivers every event at least once; `context.attempt` is larger for a repeated event.

    Attributes:
        queue_limit: The largest number of queued events, at least 1. In a full queue, the oldest event is dropped and
            counted; the count is logged at the end.
    """

    queue_limit = 10_000


class Delivery(Callback):
    """The event queue of one observer, and the thread that calls its hooks. The first event starts the thread.

    `_changed` guards the queue. It is notified when an event is queued, when the queue is closed, and when the thread
    becomes idle.

    Attributes:
        observer: The observer.
        dropped: Number of events that were not delivered because the queue was full or the final wait timed out.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer, self.dropped = observer, 0
        self._events: deque[tuple[Event, Context]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._running = False  # whether a hook is being called
        self._timed_out = False
        self._closed = False

    @property
    def name(self) -> str:
        return type(self.observer).__name__

    def put(self, event: Event, context: Context) -> None:
        """Queue an event with a copy of its context, without waiting. Do nothing if the queue is closed."""
        if self._closed:
            return
        snapshot = context.snapshot()
        with self._changed:
            if len(self._events) >= self.observer.queue_limit:
                self._events.popleft()
                self.dropped += 1
            self._events.append((event, snapshot))
            self._changed.notify_all()
        self._start()

    def on_train_end(self, context: Context) -> None:
        """Queue the event. `call_train_end` calls this method for observers and control callbacks alike."""
        self.put(Event.TRAIN_END, context)

    def drain(self, until: float) -> bool:
        """Wait until every event is delivered, at most until the time `until` of `time.monotonic`.

        Return whether every event is delivered. After one timeout, later calls do not wait.
        """
        wait_s = 0 if self._timed_out else max(until - time.monotonic(), 0)
        with self._changed:
            idle = self._changed.wait_for(lambda: not self._events and not self._running, wait_s)
        if not idle and not self._timed_out:
            self._timed_out = True
            _LOG.warning("observer %s takes too long for its events; the run no longer waits for them", self.name)
        return idle

    def finish(self) -> None:
        """Accept no further events, and let the thread end after the queued events."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def close(self, until: float | None = None) -> None:
        """Deliver the queued events, at most until the time `until`, and end the thread. Later calls do nothing.

        Events that are still queued after that time are dropped. A thread in which a hook is still running cannot be
        ended; `leave` exits a process with such a thread.
        """
        self.finish()
        idle = self.drain(time.monotonic() + WAIT_S if until is None else until)
        with self._changed:
            self.dropped += len(self._events)
            self._events.clear()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(WAIT_S if idle else 0)
            atexit.unregister(self.close)
        if not idle and self not in _stuck:
            _stuck.append(self)
        if self.dropped:
            _LOG.warning("observer %s was too slow; %d of its events are lost", self.name, self.dropped)
            self.dropped = 0

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start(self) -> None:
        if self._thread is None:
            # A daemon thread: a stuck observer must not keep the process alive.
            self._thread = threading.Thread(target=self._deliver, name=f"observer {self.name}", daemon=True)
            self._thread.start()
            atexit.register(self.close)

    def _deliver(self) -> None:
        """Run the thread: call the hook of every queued event until the queue is closed and empty."""
        while True:
            with self._changed:
                self._running = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._events or self._closed)
                if not self._events:
                    return
                self._running = True
                event, context = self._events.popleft()
            self._call(event, context)  # without the lock, so that the run can queue events at the same time

    def _call(self, event: Event, context: Context) -> None:
        try:
            getattr(self.observer, event.value)(context)
        except BaseException:  # also SystemExit and KeyboardInterrupt: an observer must not end the run
            message = "observer %s raised an exception in %s of step %d; the run continues"
            _LOG.exception(message, self.name, event.value, context.step)


def leave(code: int) -> NoReturn:
    """Exit the process with `code`. If an observer is still running, exit by `os._exit`.

    At a normal exit, Python ends the remaining threads. A thread that runs native code, such as PyTorch's, would then
    abort the process.
    """
    if any(delivery.is_alive for delivery in _stuck):
        with suppress(OSError, ValueError):
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


class _Registration(NamedTuple):
    """A callback, and its event queue if the callback is an observer."""

    callback: Callback
    delivery: Delivery | None


class Callbacks:
    """The callbacks of a run, in the order of priority, then of registration.

    An added or removed callback takes effect at the next event.

    Args:
        callbacks: The callbacks and observers.
        wait_s: Seconds that the run waits for all observers together, before a checkpoint and at its end.

    Raises:
        CallbackError: A callback is not a `Callback`, or has an unknown or asynchronous hook, or an invalid priority or
            queue_limit.
    """

    def __init__(self, callbacks: Iterable[Callback] = (), *, wait_s: float = WAIT_S) -> None:
        self._wait_s = wait_s
        self._registered = tuple(map(_register, as_callbacks(callbacks)))
        self._removed: tuple[Delivery, ...] = ()
        self._closed = False
        self._find_receivers()

    def add(self, callback: Callback) -> None:
        """Register a callback, to be called after all registered callbacks of the same priority."""
        registered = [registration.callback for registration in self._registered]
        as_callbacks([*registered, callback])  # check all, so that an error contains the position of this callback
        self._registered += (_register(callback),)
        self._find_receivers()

    def remove(self, callback: Callback | type[Callback]) -> None:
        """Remove an instance, or every instance of a type. Raise `CallbackError` if no such callback is registered.

        A removed observer still receives the events that are queued.
        """
        removed, remaining = list[_Registration](), list[_Registration]()
        for registration in self._registered:
            (removed if _matches(registration.callback, callback) else remaining).append(registration)
        if not removed:
            name = callback.__name__ if isinstance(callback, type) else type(callback).__name__
            present = ", ".join(type(registration.callback).__name__ for registration in self._registered)
            raise CallbackError(f"no callback {name} is registered; expected one of {present or 'none'}")
        self._registered = tuple(remaining)
        for _, delivery in removed:
            if delivery is not None:
                delivery.finish()
                self._removed += (delivery,)
        self._find_receivers()

    def has_callbacks(self, hook: Event | str) -> bool:
        """Return whether a callback overrides the hook; False after `close`.

        Raise `CallbackError` for an unknown hook.
        """
        controls, observers = self._receivers[event_of(hook)]
        return not self._closed and bool(controls or observers)

    def fire(self, hook: Event | str, context: Context) -> Action:
        """Call the hook on every callback that overrides it; return the union of the returned actions.

        The event is queued for observers first, so that they receive the event even if a control callback raises. After
        `close`, do nothing.
        """
        event = event_of(hook)
        controls, observers = self._receivers[event]
        if self._closed:
            return Action.CONTINUE
        for delivery in observers:
            delivery.put(event, context)
        return call_hooks(controls, event, context)

    def end(self, context: Context, cause: BaseException | None) -> None:
        """Call `on_train_end` as `call_train_end` does, and wait for the observers."""
        controls, observers = self._receivers[Event.TRAIN_END]
        try:
            call_train_end((*observers, *controls), context, cause)
        finally:
            self.settle()

    def settle(self) -> None:
        """Wait until the observers have processed every event so far; called before a checkpoint is saved."""
        until = time.monotonic() + self._wait_s
        for delivery in self._deliveries():
            delivery.drain(until)

    def states(self) -> dict[str, str]:
        """Return the states of the control callbacks that have one, as JSON, by class name and instance number.

        Raise `CallbackError` for a state that JSON cannot hold.
        """
        states = {name: _json_state(callback) for name, callback in self._controls()}
        return {name: state for name, state in states.items() if state is not None}

    def restore(self, states: Mapping[str, str]) -> None:
        """Load the states that `states` returned. A callback without a saved state is unchanged."""
        for name, callback in self._controls():
            if name in states:
                callback.load_state_dict(json.loads(states[name]))

    def _controls(self) -> Iterator[tuple[str, Callback]]:
        """Yield the control callbacks with names, such as `EarlyStopping 1` for the first callback of this class."""
        seen: Counter[str] = Counter()
        for callback, delivery in self._registered:
            name = type(callback).__qualname__
            seen[name] += 1
            if delivery is None:
                yield f"{name} {seen[name]}", callback

    def close(self) -> None:
        """Deliver the queued events within `wait_s`. No callback is called after that. Later calls do nothing."""
        if not self._closed:
            self._closed = True
            until = time.monotonic() + self._wait_s
            for delivery in self._deliveries():
                delivery.close(until)

    def _deliveries(self) -> list[Delivery]:
        return [*self._removed, *(delivery for _, delivery in self._registered if delivery is not None)]

    def _find_receivers(self) -> None:
        """Find the receivers of every event, in order. Called at registrations, which are less frequent than events."""
        self._receivers: dict[Event, tuple[tuple[Callback, ...], tuple[Delivery, ...]]] = {}
        ordered = sorted(self._registered, key=lambda registration: -registration.callback.priority)
        for event in Event:
            receivers = [registration for registration in ordered if has_hook(registration.callback, event)]
            controls = tuple(callback for callback, delivery in receivers if delivery is None)
            observers = tuple(delivery for _, delivery in receivers if delivery is not None)
            self._receivers[event] = controls, observers


def _register(callback: Callback) -> _Registration:
    """Return the callback with a new event queue if it is an observer."""
    if not isinstance(callback, Observer):
        return _Registration(callback, None)
    if not isinstance(callback.queue_limit, int) or callback.queue_limit < 1:
        # The value is not shown: it may be an argument from a callback file, which may be a secret.
        raise CallbackError(f"invalid queue_limit of {type(callback).__name__}; expected an integer of at least 1")
    return _Registration(callback, Delivery(callback))


def _json_state(callback: Callback) -> str | None:
    """Return the state of a callback as JSON; None if it is empty."""
    state = callback.state_dict()
    try:
        return json.dumps(dict(state), allow_nan=False) if state else None
    except (TypeError, ValueError) as error:
        name = f"{type(callback).__name__}.state_dict"
        raise CallbackError(f"{name} returned {state!r}; expected values that JSON can hold: {error}") from error


def _matches(callback: Callback, wanted: Callback | type[Callback]) -> bool:
    return isinstance(callback, wanted) if isinstance(wanted, type) else callback is wanted
