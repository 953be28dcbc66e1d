"""Attacks on the delivery of events to observers. The subject is that of `events`."""

import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import HOOKS
from falsifiers.callbacks.real_run import recording_callbacks
from falsifiers.observers.events import SAFETY_S, WAIT_S, Blocked, context, logged, observer

EVENTS = st.lists(st.sampled_from(HOOKS), min_size=1, max_size=30)


@given(events=EVENTS, observers=st.integers(1, 3))
@example(events=["on_step_end"] * 1000, observers=2)
def falsify_every_event_is_delivered_in_order(subject: Any, events: list[str], observers: int) -> None:
    """The last callback is no observer: it is called at once."""
    seen: list[list[tuple[str, int]]] = [[] for _ in range(observers + 1)]
    watching = [observer(lambda hook, at, n=n: seen[n].append((hook, at.step))) for n in range(observers)]
    callbacks = subject.Callbacks(
        [*watching, *recording_callbacks(1, lambda n, hook, at: seen[-1].append((hook, at.step)))]
    )
    for step, hook in enumerate(events):
        callbacks.fire(hook, context(step))
    callbacks.close()
    callbacks.fire("on_log", context(len(events)))
    callbacks.close()
    expected = [(hook, step) for step, hook in enumerate(events)]
    for number, got in enumerate(seen):
        at = next((n for n, pair in enumerate(zip(got, expected, strict=False)) if pair[0] != pair[1]), len(got))
        assert got == expected, f"callback {number}, event {at}: {got[at : at + 1]}, not {expected[at : at + 1]}"


@given(steps=st.integers(1, 8), blocking=st.integers(0, 1))
def falsify_blocked_observer_does_not_delay_others(subject: Any, steps: int, blocking: int) -> None:
    blocked, others, done = Blocked(), list[int](), threading.Event()

    def note(hook: str, at: Any) -> None:
        others.append(at.step)
        if len(others) == steps:
            done.set()

    pair = [observer(note), observer(blocked)]
    callbacks = subject.Callbacks(pair if blocking else pair[::-1])
    for step in range(steps):
        callbacks.fire("on_step_end", context(step))
    blocked.entered.wait(SAFETY_S)
    finished = done.wait(SAFETY_S)
    blocked.go.set()
    callbacks.close()
    assert blocked.released, f"the run waited until an observer gave up waiting in step {blocked.steps[:1]}"
    assert finished and others == list(range(steps)), f"beside a blocked observer, another one has got {others}"
    assert blocked.steps == list(range(steps)), f"once it went on, the blocked observer has got {blocked.steps}"


@given(limit=st.integers(1, 6), events=st.integers(1, 20))
def falsify_full_queue_drops_the_oldest_and_counts(subject: Any, limit: int, events: int) -> None:
    blocked = Blocked()
    watching = observer(blocked, queue_limit=limit)
    callbacks = subject.Callbacks([watching])
    callbacks.fire("on_step_end", context(0))
    assert blocked.entered.wait(SAFETY_S), "the observer is not called"
    for step in range(1, events + 1):
        callbacks.fire("on_step_end", context(step))
    with logged() as records:
        blocked.go.set()
        callbacks.close()
    expected = [0, *range(max(events - limit, 0) + 1, events + 1)]
    case = f"{events} events beside one that blocks, in a queue of {limit}"
    assert blocked.steps == expected, f"{case}: the observer has got {blocked.steps}; expected {expected}"
    lost, said = events + 1 - len(expected), [record.getMessage() for record in records]
    numbers = [each for each in said if "Watching" in each and str(lost) in each.split()]
    assert len(numbers) == (lost > 0), f"{case}: {lost} are lost; the log says {said}"


@given(waits=st.integers(1, 3))
def falsify_stuck_observer_is_waited_for_once(subject: Any, waits: int) -> None:
    blocked, seen = Blocked(), list[str]()
    callbacks = subject.Callbacks([observer(blocked), observer(lambda hook, at: seen.append(hook))], wait_s=WAIT_S)
    callbacks.fire("on_log", context(1))
    assert blocked.entered.wait(SAFETY_S), "the observer is not called"
    with logged() as records:
        for _ in range(waits):
            callbacks.settle()
        callbacks.end(context(1), None)
        callbacks.close()
    inside = blocked.released
    blocked.go.set()
    assert inside is None, "the end of the run waited until a stuck observer gave up"
    said = [each for each in (record.getMessage() for record in records) if "takes too long" in each]
    assert len(said) == 1 and "Watching" in said[0], f"a stuck observer is reported as {said}; expected once, by name"
    assert seen == ["on_log", "on_train_end"], f"beside a stuck observer, another one has got {seen}"
    waited = _default_waits(subject)
    assert waited == [DEFAULT_S] * 3, f"checkpoint, end and close wait {waited} s for a stuck observer by default"


DEFAULT_S = 10.0
"""How long a run waits for its observers by default, as its documentation says."""


def _default_waits(subject: Any) -> list[float]:
    """Return how long the calls that wait would wait for a stuck observer, without waiting: the clock stands still."""
    waits = list[float]()

    def wait_for(self: Any, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        if threading.current_thread() is not caller:
            return original(self, predicate, timeout)
        waits.append(float("inf") if timeout is None else timeout)
        return predicate()

    caller, original = threading.current_thread(), threading.Condition.wait_for
    calls: list[Callable[[Any], object]] = [
        lambda callbacks: callbacks.settle(),
        lambda callbacks: callbacks.end(context(1), None),
        lambda callbacks: callbacks.close(),
    ]
    for call in calls:
        blocked = Blocked()
        callbacks = subject.Callbacks([observer(blocked)])
        callbacks.fire("on_log", context(1))
        assert blocked.entered.wait(SAFETY_S), "the observer is not called"
        with mock.patch("time.monotonic", lambda: 0.0), mock.patch("threading.Condition.wait_for", wait_for), logged():
            call(callbacks)
        blocked.go.set()
        with logged():
            callbacks.close()
    return waits


@given(fired=EVENTS, at=st.sampled_from(["a checkpoint", "a checkpoint, removed", "the end", "the end, failed"]))
def falsify_run_waits_for_observers(subject: Any, fired: list[str], at: str) -> None:
    go, seen = threading.Event(), list[str]()

    def slowly(hook: str, context: Any) -> None:
        go.wait(SAFETY_S)
        seen.append(hook)

    watching = observer(slowly)
    callbacks = subject.Callbacks([watching])
    for hook in fired:
        callbacks.fire(hook, context(1))
    if "removed" in at:
        callbacks.remove(watching)
    threading.Timer(0.05, go.set).start()
    if "end" in at:
        callbacks.end(context(1), RuntimeError("on purpose") if "failed" in at else None)
    else:
        callbacks.settle()
    got, expected = list(seen), [*fired, *["on_train_end"] * ("end" in at)]
    callbacks.close()
    assert got == expected, f"{at} of a run waited for {len(got)} of {len(expected)} events"
