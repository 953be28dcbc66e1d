"""Attacks on the shutdown of observers. The subject has `Delivery` and `leave`, as `training.observers` does."""

import atexit
import json
import math
import os
import sys
import threading
import time
import traceback
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.observers.events import Blocked, context, logged, observer
from falsifiers.support.interruptions import in_child
from reference_trainer import Callback
from reference_trainer.errors import CallbackError
from reference_trainer.plan.schedule import Event

PATIENCE_S = 60.0
"""A wait this long ends a trial that would hang; no claim depends on it."""


def _blocked(subject: Any, events: int, **attributes: Any) -> tuple[Any, Blocked]:
    """Return the delivery of an observer that is blocked in the first of these events, and what blocks it."""
    blocked = Blocked(PATIENCE_S)
    delivery = subject.Delivery(observer(blocked, **attributes))
    delivery.put(Event.LOG, context(0))
    assert blocked.entered.wait(PATIENCE_S), "the observer is not called"
    for step in range(1, events):
        delivery.put(Event.LOG, context(step))
    return delivery, blocked


@given(events=st.integers(1, 6), limit=st.integers(1, 4))
def falsify_undelivered_events_are_dropped_and_counted(subject: Any, events: int, limit: int) -> None:
    delivery, blocked = _blocked(subject, events, queue_limit=limit)
    with logged() as records:
        for _ in range(2):
            delivery.close(time.monotonic())
        delivery.put(Event.LOG, context(events))
    blocked.go.set()
    patience = time.monotonic() + PATIENCE_S
    while delivery.is_alive and time.monotonic() < patience:
        time.sleep(0.001)
    case = f"{events} events beside a hook that does not return, in a queue of {limit}"
    assert blocked.steps == [0], f"{case}: after the end, the observer has got {blocked.steps}"
    assert not delivery.is_alive, f"{case}: its thread goes on after its last hook has returned"
    said = [each for each in (record.getMessage() for record in records) if "lost" in each]
    numbers = [int(word) for each in said for word in each.split() if word.isdigit()]
    expected = [events - 1] * (events > 1)
    assert numbers == expected, f"{case}: {events - 1} are lost; the log says {said}"


@given(events=st.integers(2, 5))
def falsify_queued_events_are_delivered_at_exit(subject: Any, events: int) -> None:
    def exits() -> None:
        go, seen = threading.Event(), list[int]()

        def slowly(hook: str, at: Any) -> None:
            go.wait()
            time.sleep(0.1)
            seen.append(at.step)

        atexit._clear()
        delivery = subject.Delivery(observer(slowly))
        for step in range(events):
            delivery.put(Event.LOG, context(step))
        atexit.register(go.set)  # called first
        atexit._run_exitfuncs()
        assert seen == list(range(events)), f"{events} events wait at the exit; delivered were {seen}"

    ended = in_child(exits)
    assert ended == "done", ended


@given(stuck=st.booleans(), code=st.integers(1, 100))
def falsify_blocked_observer_does_not_prevent_exit(subject: Any, stuck: bool, code: int) -> None:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        raised = 0
        try:
            sys.stdout, sys.stderr = (os.fdopen(os.dup(writing), "w", encoding="utf-8") for _ in range(2))
            delivery, blocked = _blocked(subject, 1)
            if not stuck:
                blocked.go.set()
            with logged():
                delivery.close(time.monotonic() + (0 if stuck else PATIENCE_S))
            sys.stdout.write("o")
            sys.stderr.write("e")
            subject.leave(code)
        except SystemExit as error:
            raised = int(error.code or 0)
        except BaseException:
            sys.stdout.write(traceback.format_exc())
        finally:
            sys.stdout.flush()
            os._exit(raised + 100)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    seen = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), sorted(said)
    expected = (code, ["e", "o"]) if stuck else (code + 100, ["o"])  # Python flushes both after SystemExit
    what = "beside a hook that does not return" if stuck else "after all hooks have returned"
    assert seen == expected, f"{what}, the exit code is {seen[0]}, the output {said!r}; expected {expected}"


NO_JSON = st.sampled_from([math.nan, math.inf, -math.inf])


class Keeping(Callback):
    """A control callback whose state is what it was given."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


@given(numbers=st.lists(st.floats(allow_nan=False, allow_infinity=False) | NO_JSON, min_size=1, max_size=3))
def falsify_states_are_strict_json(subject: Any, numbers: list[float]) -> None:
    kept = {"numbers": numbers}
    callbacks = subject.Callbacks([Keeping(kept), Keeping({}), Keeping(kept)])
    try:
        states = callbacks.states()
    except CallbackError as error:
        assert not all(map(math.isfinite, numbers)), f"the state {numbers} is refused"
        assert "Keeping.state_dict" in str(error), f"{error} does not name the method that returned the state"
        return
    assert all(map(math.isfinite, numbers)), f"the state {numbers} is saved as {states}"
    read = {name: json.loads(each) for name, each in states.items()}
    assert read == {"Keeping 1": kept, "Keeping 3": kept}, f"{numbers} is saved as {states}"
    fresh = [Keeping("new") for _ in range(4)]
    subject.Callbacks([Callback(), *fresh]).restore(states)
    seen = [each.state for each in fresh]
    assert seen == [kept, "new", kept, "new"], f"{states} is given back to more callbacks as {seen}"
