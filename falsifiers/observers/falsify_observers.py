"""Attacks on the registration of callbacks, the delivery of events to observers, and the end of a run.

The subjects are `callbacks.dispatch` and `callbacks.delivery`.
"""

import atexit
import json
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import ANSWERS, HOOKS, Call, Recorder, Script, assert_same_calls, lifecycle, scripts
from falsifiers.callbacks.real_run import parts, recording_callbacks, run
from falsifiers.observers.events import SAFETY_S, WAIT_S, Blocked, context, logged, observer
from falsifiers.support.assertions import assert_equal
from falsifiers.support.interruptions import in_child
from falsifiers.support.oracles import assert_refused
from reference_trainer import Action, Callback, Observer, RunIdentity
from reference_trainer.callbacks.dispatch import Callbacks
from reference_trainer.errors import CallbackError
from reference_trainer.plan.schedule import Event

KINDS = ("first", "second", "derived")


@given(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4), watching=st.booleans(), by_type=st.booleans())
def falsify_removed_callbacks_get_no_later_event(subject: Any, kinds: list[str], watching: bool, by_type: bool) -> None:
    base, steps = Observer if watching else Callback, [list[int]() for _ in (*kinds, "added")]
    # All callbacks are equal, as instances of a dataclass may be: an instance is recognized by its identity.
    types = {name: type(name.title(), (base,), {"__eq__": lambda *_: True}) for name in ("first", "second")}
    types["derived"] = type("Derived", (types["first"],), {})

    def new_callback(number: int, kind: str) -> Any:
        """Return a callback with the hook on_log, a method of its class or, if `number` is odd, an attribute."""
        hook = {"on_log": lambda at: steps[number].append(at.step)}
        methods = {} if number % 2 else {"on_log": lambda self, at: hook["on_log"](at)}
        callback = type("Recording", (types[kind],), methods)()
        vars(callback).update(hook if number % 2 else {})
        return callback

    def hooks() -> list[str]:
        return [hook for hook in HOOKS if callbacks.has_callbacks(hook)]

    registered = [new_callback(number, kind) for number, kind in enumerate(kinds)]
    target = types[kinds[0]] if by_type else registered[0]
    callbacks, seen_hooks = subject.Callbacks(registered), list[list[str]]()
    changes = [
        lambda: None,
        lambda: callbacks.remove(target),
        lambda: callbacks.add(new_callback(len(kinds), "second")),
    ]
    for step, change in enumerate(changes, 1):
        change()
        seen_hooks.append(hooks())
        callbacks.fire("on_log", context(step))
    callbacks.close()
    seen_hooks.append(hooks())
    removed = [isinstance(callback, target) if by_type else callback is target for callback in registered]
    expected = [*([1] if is_removed else [1, 2, 3] for is_removed in removed), [3]]
    case = f"{target} is removed from {kinds}"
    assert_equal(f"{case}: steps by callback", steps, expected)
    expected_hooks = [["on_log"], ["on_log"] * (not all(removed)), ["on_log"], []]
    assert_equal(f"{case}: hooks with callbacks", seen_hooks, expected_hooks)


@given(watching=st.booleans(), closed=st.booleans())
def falsify_mistakes_are_refused(subject: Any, watching: bool, closed: bool) -> None:
    base, seen = Observer if watching else Callback, list[int]()
    registered = type("Registered", (base,), {"on_log": lambda self, at: seen.append(at.step)})()
    other, misspelled = type("Other", (base,), {}), type("Mine", (base,), {"on_logs": print})
    callbacks = subject.Callbacks([registered])
    if closed:
        callbacks.close()
    mistakes: list[tuple[str, Any, tuple[str, ...]]] = [
        ("fire", ("on_step_ends", context(1)), ("on_step_ends", "on_step_end'")),
        ("fire", ("on_fit_start", context(1)), ("on_fit_start", *HOOKS)),
        ("has_callbacks", ("step_end",), ("'step_end'", "on_step_end")),
        ("remove", (other(),), ("Other", "Registered")),
        ("remove", (other,), ("Other", "Registered")),
        ("add", (misspelled(),), ("on_logs", "on_log'")),
        ("add", (other,), ("the class Other",)),
        ("add", (None,), ("NoneType",)),
        ("add", (type("Short", (Observer,), {"queue_limit": 0})(),), ("queue_limit", "Short")),
    ]
    for method, arguments, words in mistakes:
        call = partial(getattr(callbacks, method), *arguments)
        assert_refused(f"{method}{arguments}", call, *words, kind=CallbackError)
    callbacks.fire("on_log", context(1))
    callbacks.close()
    assert_equal("after the refusals, steps of the registered callback", seen, [1] * (not closed))


ERRORS = [RuntimeError, SystemExit, KeyboardInterrupt, StopIteration, GeneratorExit]
MAPS = ("metrics", "validation_metrics", "batch_metrics")


@given(hook=st.sampled_from(HOOKS[:-1]), name=st.sampled_from(MAPS), nested=st.booleans())
def falsify_each_observer_has_its_own_snapshot(subject: Any, hook: str, name: str, nested: bool) -> None:
    seen, go = list[Any](), threading.Event()

    def change(hook: str, at: Any) -> None:
        values = getattr(at, name)
        (values["inner"] if nested else values)["loss"] = -1.0

    def record(hook: str, at: Any) -> None:
        go.wait(SAFETY_S)
        seen.append(getattr(at, name))

    callbacks = subject.Callbacks([observer(change), observer(record)])
    values: dict[str, Any] = {"loss": 2.0, "inner": {"loss": 3.0}}
    callbacks.fire(hook, context(1, **{name: values}))
    values["loss"], values["inner"]["loss"] = 7.0, 8.0
    go.set()
    callbacks.close()
    views, expected = (*seen, values), ({"loss": 2.0, "inner": {"loss": 3.0}}, {"loss": 7.0, "inner": {"loss": 8.0}})
    assert_equal(f"{name} of {hook} in another observer and in the run", views, expected)


@given(hook=st.sampled_from(HOOKS), error=st.sampled_from(ERRORS), step=st.integers(100, 999), events=st.integers(1, 4))
def falsify_exceptions_of_observers_are_logged(
    subject: Any, hook: str, error: type[BaseException], step: int, events: int
) -> None:
    seen = list[int]()

    def fail(hook: str, at: Any) -> None:
        seen.append(at.step)
        raise error("on purpose")

    callbacks = subject.Callbacks([observer(fail)])
    with logged() as records:
        for number in range(events):
            at = context(step + number)
            try:
                callbacks.end(at, None) if hook == "on_train_end" else callbacks.fire(hook, at)
            except BaseException as raised:
                raise AssertionError(f"{error.__name__} in {hook} of an observer reaches the run: {raised!r}") from None
        callbacks.close()
    steps = [step + number for number in range(events)]
    assert_equal(f"{error.__name__} in {hook}: steps of the observer", seen, steps)
    assert_equal(f"number of log entries in {[entry.getMessage() for entry in records]}", len(records), events)
    for record, number in zip(records, steps, strict=True):
        message, expected = record.getMessage(), f"observer Watching raised an exception in {hook} of step {number}"
        assert expected in message, f"the message is {message!r}; expected {expected!r}"
        kind = record.exc_info and record.exc_info[0]
        assert kind is error, f"exc_info {record.exc_info}; expected the traceback of {error.__name__}"


@given(
    script=scripts(ANSWERS, fewest=1, most=2),
    observers=st.integers(1, 2),
    raises=st.none() | st.integers(0, 60),
    shared=st.booleans(),
)
def falsify_observers_see_the_whole_run(
    subject: Any, script: Script, observers: int, raises: int | None, shared: bool
) -> None:
    """Observers return STOP, which has no effect.

    raises: index of the call of a control callback that raises. shared: the caller creates and closes `Callbacks`.
    """
    planned, recorder = lifecycle(script).calls, Recorder(script)
    seen: list[list[Call]] = [[] for _ in range(observers)]
    identities = set[tuple[Any, ...]]()

    def act(callback: int, event: str, at: Any) -> Any:
        if raises is not None and len(recorder.calls) == raises:
            raise RuntimeError("raised on purpose")
        return recorder.act(callback, event, at)

    def record(number: int, hook: str, at: Any) -> Action:
        seen[number].append(Call(0, hook, at.epoch, at.step, at.micro_batch))
        identities.add((at.run, at.attempt, at.hook == hook, at.rank, at.world_size))
        return Action.STOP

    watchers = [observer(partial(record, number)) for number in range(observers)]
    before = set(threading.enumerate())
    options = parts() | {"identity": RunIdentity(run="mine", attempt=7)}
    registered = [*recording_callbacks(len(script.answers), act), *watchers]
    callbacks: Any = Callbacks(registered) if shared else registered
    settled, original = set[int](), Callbacks.settle

    def settle(self: Callbacks) -> None:
        settled.add(len(recorder.calls))
        original(self)

    try:
        with mock.patch.object(Callbacks, "settle", settle):
            run(subject, script, callbacks, options)
    except RuntimeError:
        assert raises is not None, "the run raised an error that no callback raised"
    first = {call: place for place, call in reversed([*enumerate(recorder.calls)]) if call.event == "on_save"}
    unsettled = [str(call) for call, place in first.items() if call.callback == 0 and place not in settled]
    assert not unsettled, f"the run did not wait for observers before the checkpoints of {unsettled}"
    if shared:
        assert callbacks.has_callbacks("on_log"), "the run closed the `Callbacks` object of its caller"
        callbacks.close()
    threads = set(threading.enumerate()) - before
    assert not threads, f"threads of observers after the end of the run: {threads}; expected none"
    count, expected = len(script.answers), planned[:: len(script.answers)]
    if raises is not None and raises < len(planned):
        at = planned[raises]
        ends = [Call(0, "on_train_end", at.epoch, at.taken)] if at.event != "on_train_end" else []
        expected = expected[: raises // count + 1] + ends
    for calls in seen:
        assert_same_calls(calls, expected)
    assert_equal("run, attempt, own hook, rank and world size of events", identities, {("mine", 7, True, 0, 1)})


EVENTS = st.lists(st.sampled_from(HOOKS), min_size=1, max_size=30)


@given(events=EVENTS, observers=st.integers(1, 3))
@example(events=["on_step_end"] * 1000, observers=2)
def falsify_every_event_is_delivered_in_order(subject: Any, events: list[str], observers: int) -> None:
    """The last callback is not an observer: its hooks are called in the thread of the run."""
    seen: list[list[tuple[str, int]]] = [[] for _ in range(observers + 1)]
    watchers = [observer(lambda hook, at, n=n: seen[n].append((hook, at.step))) for n in range(observers)]
    control = recording_callbacks(1, lambda n, hook, at: seen[-1].append((hook, at.step)))
    callbacks = subject.Callbacks([*watchers, *control])
    for step, hook in enumerate(events):
        callbacks.fire(hook, context(step))
    callbacks.close()
    callbacks.fire("on_log", context(len(events)))
    callbacks.close()
    expected = [(hook, step) for step, hook in enumerate(events)]
    for number, calls in enumerate(seen):
        at = next((n for n, pair in enumerate(zip(calls, expected, strict=False)) if pair[0] != pair[1]), len(calls))
        assert calls == expected, f"callback {number}, event {at}: {calls[at : at + 1]}, not {expected[at : at + 1]}"


@given(steps=st.integers(1, 8), blocking=st.integers(0, 1))
def falsify_blocked_observer_does_not_delay_others(subject: Any, steps: int, blocking: int) -> None:
    blocked, delivered, done = Blocked(), list[int](), threading.Event()

    def record(hook: str, at: Any) -> None:
        delivered.append(at.step)
        if len(delivered) == steps:
            done.set()

    pair = [observer(record), observer(blocked)]
    callbacks = subject.Callbacks(pair if blocking else pair[::-1])
    for step in range(steps):
        callbacks.fire("on_step_end", context(step))
    blocked.entered.wait(SAFETY_S)
    finished = done.wait(SAFETY_S)
    blocked.go.set()
    callbacks.close()
    assert blocked.released, f"the run waited for a blocked observer, which timed out in step {blocked.steps[:1]}"
    assert finished and delivered == list(range(steps)), f"steps of another observer: {delivered}; not {steps} steps"
    assert_equal("steps of the blocked observer after its release", blocked.steps, list(range(steps)))


@given(limit=st.integers(1, 6), events=st.integers(1, 20))
def falsify_full_queue_drops_the_oldest_and_counts(subject: Any, limit: int, events: int) -> None:
    blocked = Blocked()
    watching = observer(blocked, queue_limit=limit)
    callbacks = subject.Callbacks([watching])
    callbacks.fire("on_step_end", context(0))
    assert blocked.entered.wait(SAFETY_S), "the observer was not called in time"
    for step in range(1, events + 1):
        callbacks.fire("on_step_end", context(step))
    with logged() as records:
        blocked.go.set()
        callbacks.close()
    expected = [0, *range(max(events - limit, 0) + 1, events + 1)]
    case = f"{events} events after an event that blocks, queue of {limit}"
    assert_equal(f"{case}: steps of the observer", blocked.steps, expected)
    lost, messages = events + 1 - len(expected), [record.getMessage() for record in records]
    numbers = [message for message in messages if "Watching" in message and str(lost) in message.split()]
    assert len(numbers) == (lost > 0), f"{case}: {lost} events are lost; the log has {messages}"


@given(waits=st.integers(1, 3))
def falsify_stuck_observer_is_waited_for_once(subject: Any, waits: int) -> None:
    blocked, seen = Blocked(), list[str]()
    callbacks = subject.Callbacks([observer(blocked), observer(lambda hook, at: seen.append(hook))], wait_s=WAIT_S)
    callbacks.fire("on_log", context(1))
    assert blocked.entered.wait(SAFETY_S), "the observer was not called in time"
    with logged() as records:
        for _ in range(waits):
            callbacks.settle()
        callbacks.end(context(1), None)
        callbacks.close()
    timed_out = blocked.released  # None while the hook is blocked
    blocked.go.set()
    assert timed_out is None, f"the run waited longer than {WAIT_S} s for a stuck observer"
    logs = [message for message in (record.getMessage() for record in records) if "takes too long" in message]
    assert len(logs) == 1 and "Watching" in logs[0], f"log of a stuck observer: {logs}; expected one with its name"
    assert_equal("hooks of another observer", seen, ["on_log", "on_train_end"])
    expected = [DEFAULT_S] * 4 + [0.0]
    assert_equal("default waits in s of checkpoint, end, close, and two checkpoints", _default_waits(subject), expected)


DEFAULT_S = 10.0
"""The documented default time that a run waits for its observers."""


def _default_waits(subject: Any) -> list[float]:
    """Return the timeouts with which settle, end, close, and two settles wait for a stuck observer.

    The waits are replaced, and the clock stands still, so this takes no time.
    """
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
        lambda callbacks: [callbacks.settle() for _ in range(2)],
    ]
    for call in calls:
        blocked = Blocked()
        callbacks = subject.Callbacks([observer(blocked)])
        callbacks.fire("on_log", context(1))
        assert blocked.entered.wait(SAFETY_S), "the observer was not called in time"
        with mock.patch("time.monotonic", lambda: 0.0), mock.patch("threading.Condition.wait_for", wait_for), logged():
            call(callbacks)
        blocked.go.set()
        with logged():
            callbacks.close()
    return waits


@given(events=EVENTS, at=st.sampled_from(["a checkpoint", "a checkpoint, removed", "the end", "the end, failed"]))
@example(events=["on_log"], at="a checkpoint, removed")
def falsify_run_waits_for_observers(subject: Any, events: list[str], at: str) -> None:
    go, seen = threading.Event(), list[str]()

    def slow_hook(hook: str, context: Any) -> None:
        go.wait(SAFETY_S)
        seen.append(hook)

    slow_observer = observer(slow_hook)
    callbacks = subject.Callbacks([slow_observer])
    for hook in events:
        callbacks.fire(hook, context(1))
    if "removed" in at:
        callbacks.remove(slow_observer)
    threading.Timer(0.05, go.set).start()
    if "end" in at:
        callbacks.end(context(1), RuntimeError("on purpose") if "failed" in at else None)
    else:
        callbacks.settle()
    delivered, expected = list(seen), [*events, *["on_train_end"] * ("end" in at)]
    callbacks.close()
    assert_equal(f"{at}: events delivered when the call returns", delivered, expected)


LIMIT_S = 60.0
"""Time limit for threads and processes that end, as `SAFETY_S`; no claim depends on it."""


def _blocked(subject: Any, events: int, **attributes: Any) -> tuple[Any, Blocked]:
    """Return a delivery with these events whose observer is blocked in the first one, and the hook of the observer."""
    blocked = Blocked(LIMIT_S)
    delivery = subject.Delivery(observer(blocked, **attributes))
    delivery.put(Event.LOG, context(0))
    assert blocked.entered.wait(LIMIT_S), "the observer was not called in time"
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
    deadline = time.monotonic() + LIMIT_S
    while delivery.is_alive and time.monotonic() < deadline:
        time.sleep(0.001)
    case = f"{events} events, the first blocked, queue of {limit}"
    assert_equal(f"{case}: steps of the observer", blocked.steps, [0])
    assert not delivery.is_alive, f"{case}: the thread is alive after the last hook returned; expected its end"
    messages = [message for message in (record.getMessage() for record in records) if "lost" in message]
    numbers = [int(word) for message in messages for word in message.split() if word.isdigit()]
    expected = [events - 1] * (events > 1)
    assert numbers == expected, f"{case}: numbers in the log {messages}; expected {expected}"


@given(events=st.integers(2, 5))
def falsify_queued_events_are_delivered_at_exit(subject: Any, events: int) -> None:
    def exit_process() -> None:
        go, seen = threading.Event(), list[int]()

        def slow_hook(hook: str, at: Any) -> None:
            go.wait()
            time.sleep(0.1)
            seen.append(at.step)

        atexit._clear()
        delivery = subject.Delivery(observer(slow_hook))
        for step in range(events):
            delivery.put(Event.LOG, context(step))
        atexit.register(go.set)  # exit functions are called last in, first out
        atexit._run_exitfuncs()
        assert_equal(f"events delivered at the exit, of {events}", seen, list(range(events)))

    assert_equal("end of the process", in_child(exit_process), "done")


@given(stuck=st.booleans(), code=st.integers(1, 100))
def falsify_blocked_observer_does_not_prevent_exit(subject: Any, stuck: bool, code: int) -> None:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        exit_code = 0
        try:
            sys.stdout, sys.stderr = (os.fdopen(os.dup(writing), "w", encoding="utf-8") for _ in range(2))
            delivery, blocked = _blocked(subject, 1)
            if not stuck:
                blocked.go.set()
            with logged():
                delivery.close(time.monotonic() + (0 if stuck else LIMIT_S))
            sys.stdout.write("o")
            sys.stderr.write("e")
            subject.leave(code)
        except SystemExit as error:
            exit_code = int(error.code or 0)
        except BaseException:
            sys.stdout.write(traceback.format_exc())
        finally:
            sys.stdout.flush()
            os._exit(exit_code + 100)  # + 100: `leave` raised SystemExit or returned
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        output = pipe.read()
    seen = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), sorted(output)
    expected = (code, ["e", "o"]) if stuck else (code + 100, ["o"])  # Python flushes both after SystemExit
    case = "with a blocked hook" if stuck else "after all hooks returned"
    assert seen == expected, f"{case}: exit code {seen[0]}, output {output!r}; expected {expected}"


NON_FINITE = st.sampled_from([math.nan, math.inf, -math.inf])


class Stateful(Callback):
    """A control callback that stores the state that it is given."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


@given(numbers=st.lists(st.floats(allow_nan=False, allow_infinity=False) | NON_FINITE, min_size=1, max_size=3))
def falsify_states_are_strict_json(subject: Any, numbers: list[float]) -> None:
    state = {"numbers": numbers}
    callbacks = subject.Callbacks([Stateful(state), Stateful({}), Stateful(state)])
    try:
        states = callbacks.states()
    except CallbackError as error:
        assert not all(map(math.isfinite, numbers)), f"the finite state {numbers} is refused: {error}"
        assert "Stateful.state_dict" in str(error), f"{error} does not name the method that returned the state"
        return
    assert all(map(math.isfinite, numbers)), f"the state {numbers} is saved as {states}; expected a refusal"
    read = {name: json.loads(text) for name, text in states.items()}
    assert_equal("saved states", read, {"Stateful 1": state, "Stateful 3": state})
    restored = [Stateful("new") for _ in range(4)]
    subject.Callbacks([Callback(), *restored]).restore(states)
    seen = [callback.state for callback in restored]
    assert_equal(f"states of four callbacks, restored from {states}", seen, [state, "new", state, "new"])
