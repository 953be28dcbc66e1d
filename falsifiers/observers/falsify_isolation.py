"""Attacks on the isolation of a run from its observers, and of observers from each other. Subject: that of `events`."""

from __future__ import annotations

import threading
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import HOOKS
from falsifiers.observers.events import SAFETY_S, context, logged, observer

ERRORS = [RuntimeError, SystemExit, KeyboardInterrupt, StopIteration, GeneratorExit]
MAPS = ("metrics", "validation_metrics", "batch_metrics")


@given(hook=st.sampled_from(HOOKS[:-1]), name=st.sampled_from(MAPS), nested=st.booleans())
def falsify_each_observer_has_its_own_snapshot(subject: Any, hook: str, name: str, nested: bool) -> None:
    seen, go = list[Any](), threading.Event()

    def change(hook: str, at: Any) -> None:
        values = getattr(at, name)
        (values["inner"] if nested else values)["loss"] = -1.0

    def look(hook: str, at: Any) -> None:
        go.wait(SAFETY_S)
        seen.append(getattr(at, name))

    callbacks = subject.Callbacks([observer(change), observer(look)])
    values: dict[str, Any] = {"loss": 2.0, "inner": {"loss": 3.0}}
    callbacks.fire(hook, context(1, **{name: values}))
    values["loss"], values["inner"]["loss"] = 7.0, 8.0
    go.set()
    callbacks.close()
    got, expected = (*seen, values), ({"loss": 2.0, "inner": {"loss": 3.0}}, {"loss": 7.0, "inner": {"loss": 8.0}})
    assert got == expected, f"{name} of {hook}: an observer and the run see {got}; expected {expected}"


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
