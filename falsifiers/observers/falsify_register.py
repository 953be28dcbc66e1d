"""Attacks on adding, removing and asking for callbacks. The subject is that of `events`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.observers.events import context
from reference_trainer import Callback, CallbackError, Observer

KINDS = ("first", "second", "derived")


def _types(base: type[Callback]) -> dict[str, Any]:
    first = type("First", (base,), {})
    return {"first": first, "second": type("Second", (base,), {}), "derived": type("Derived", (first,), {})}


@given(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4), watching=st.booleans(), by_type=st.booleans())
def falsify_removed_callbacks_get_no_later_event(subject: Any, kinds: list[str], watching: bool, by_type: bool) -> None:
    steps, types = [list[int]() for _ in kinds], _types(Observer if watching else Callback)

    def made(number: int, kind: str) -> Any:
        return type("One", (types[kind],), {"on_log": lambda self, at: steps[number].append(at.step)})()

    registered = [made(number, kind) for number, kind in enumerate(kinds)]
    target = types[kinds[0]] if by_type else registered[0]
    callbacks = subject.Callbacks(registered)
    callbacks.fire("on_log", context(1))
    callbacks.remove(target)
    callbacks.fire("on_log", context(2))
    callbacks.close()
    gone = [isinstance(each, target) if by_type else each is target for each in registered]
    expected = [[1] if is_gone else [1, 2] for is_gone in gone]
    assert steps == expected, f"{target} is removed from {kinds}: they got {steps}; expected {expected}"


def _mistakes(callbacks: Any, watching: bool) -> dict[str, tuple[Callable[[], object], str]]:
    """Return calls that are refused, each with what the message names."""
    base = Observer if watching else Callback
    return {
        "an unknown event": (lambda: callbacks.fire("on_step_ends", context(1)), "on_step_end"),
        "an unknown hook": (lambda: callbacks.has_callbacks("on_fit_start"), "on_step_end"),
        "a removed stranger": (lambda: callbacks.remove(type("Other", (base,), {})()), "Other"),
        "a removed kind": (lambda: callbacks.remove(type("Other", (base,), {})), "Other"),
        "a misspelt hook": (lambda: callbacks.add(type("Mine", (base,), {"on_logs": print})()), "on_logs"),
        "None": (lambda: callbacks.add(None), "None"),
    }


@given(watching=st.booleans())
def falsify_mistakes_are_refused(subject: Any, watching: bool) -> None:
    callbacks = subject.Callbacks([Callback()])
    for kind, (call, word) in _mistakes(callbacks, watching).items():
        try:
            call()
        except CallbackError as error:
            assert word in str(error), f"{kind} is refused with {error}"
        else:
            raise AssertionError(f"{kind} is accepted")


@given(appended=st.integers(1, 3))
def falsify_callbacks_change_between_events(subject: Any, appended: int) -> None:
    seen: list[tuple[str, int]] = []

    def note(name: str) -> Any:
        return type(name, (Callback,), {"on_log": lambda self, at: seen.append((name, at.step))})()

    def change(self: Any, at: Any) -> None:
        if at.step == 1:
            callbacks.remove(second)
            for number in range(appended):
                callbacks.add(note(f"late {number}"))

    second = note("second")
    callbacks = subject.Callbacks([type("Changing", (Callback,), {"on_log": change})(), second])
    for step in (1, 2):
        callbacks.fire("on_log", context(step))
    expected = [("second", 1), *((f"late {number}", 2) for number in range(appended))]
    assert seen == expected, f"callbacks that are exchanged in step 1 are called as {seen}; expected {expected}"
    callbacks.close()
