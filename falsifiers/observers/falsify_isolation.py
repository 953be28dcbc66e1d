"""Attacks on the isolation of a run from its observers, and of observers from each other. Subject: that of `events`."""

from __future__ import annotations

import threading
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import HOOKS
from falsifiers.observers.events import context, logged, observer
from reference_trainer import Callback, Context

ERRORS = [RuntimeError, SystemExit, KeyboardInterrupt, StopIteration, GeneratorExit]
MAPS = ("metrics", "validation_metrics", "batch_metrics")


@given(hook=st.sampled_from(HOOKS[:-1]), name=st.sampled_from(MAPS), nested=st.booleans(), later=st.booleans())
def falsify_each_observer_has_its_own_snapshot(subject: Any, hook: str, name: str, nested: bool, later: bool) -> None:
    seen: list[Any] = []
    go = threading.Event()

    def change(hook: str, at: Any) -> None:
        values = getattr(at, name)
        (values["inner"] if nested else values)["loss"] = -1.0

    def look(hook: str, at: Any) -> None:
        go.wait(5.0)
        seen.append(getattr(at, name))

    callbacks = subject.Callbacks([observer(change), observer(look)])
    values: dict[str, Any] = {"loss": 2.0, "inner": {"loss": 3.0}}
    own = context(1, **{name: values})
    callbacks.fire(hook, own)
    first = callbacks
    kept = {"loss": 2.0, "inner": {"loss": 3.0}}
    if later:
        values["loss"], values["inner"]["loss"] = 7.0, 8.0
        kept_by_run = {"loss": 7.0, "inner": {"loss": 8.0}}
    else:
        kept_by_run = kept
    go.set()
    first.close()
    assert seen == [kept], f"{name} of {hook}: an observer sees {seen}, changed by another or later; expected {kept}"
    assert values == kept_by_run, f"{name} of {hook}: an observer changed the run's to {values}"


@given(hook=st.sampled_from(HOOKS[:-1]), late=st.sampled_from(["loss", "gradient_norm", "memory", "batch_metrics"]))
def falsify_values_are_read_by_the_run(subject: Any, hook: str, late: str) -> None:
    readers, seen = list[str](), list[Any]()
    value: Any = {"loss": 4.0} if late == "batch_metrics" else 4.0

    def read() -> Any:
        readers.append(threading.current_thread().name)
        return value

    known = {each: getattr(context(1), each) for each in Context.__dataclass_fields__ if each != late}
    callbacks = subject.Callbacks([observer(lambda hook, at: seen.append(getattr(at, late)))])
    callbacks.fire(hook, Context.incomplete(known, {late: read}))
    callbacks.close()
    assert seen == [value], f"{late} at {hook}: the observer sees {seen}; expected {value}"
    here = threading.current_thread().name
    assert readers == [here], f"{late} at {hook} is read by {readers}; expected once, by {here}"


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
    assert seen == steps, f"{error.__name__} in {hook} of step {step}: the observer has got the steps {seen}"
    assert len(records) == events, f"{events} exceptions are logged as {[each.getMessage() for each in records]}"
    for record, number in zip(records, steps, strict=True):
        said, expected = record.getMessage(), f"observer Watching raised an exception in {hook} of step {number}"
        assert expected in said, f"the message is {said!r}; expected {expected!r}"
        kind = record.exc_info and record.exc_info[0]
        assert kind is error, f"the traceback of {error.__name__} is missing: {record.exc_info}"


@given(answers=st.lists(st.sampled_from(["STOP", 7, True, "stop"]), min_size=1, max_size=3))
def falsify_answers_of_observers_are_ignored(subject: Any, answers: list[Any]) -> None:
    from reference_trainer import Action

    given = [Action.STOP if each == "STOP" else each for each in answers]
    control = type("Control", (Callback,), {"on_step_end": lambda self, at: Action.SKIP})()
    callbacks = subject.Callbacks([*[observer(lambda hook, at, each=each: each) for each in given], control])
    answer = callbacks.fire("on_step_end", context(1))
    callbacks.close()
    assert answer is Action.SKIP, f"observers that return {answers} turn SKIP into {answer}"
