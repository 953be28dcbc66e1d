"""Attacks on how observers are registered and what they see of a run."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import ANSWERS, HOOKS, Call, Recorder, Script, assert_same_calls, lifecycle, scripts
from falsifiers.callbacks.real_run import parts, recording_callbacks, run
from falsifiers.observers.events import SAFETY_S, context, logged, observer
from falsifiers.support.oracles import assert_refused
from reference_trainer import Action, Callback, CallbackError, Observer, RunIdentity
from reference_trainer.callbacks.dispatch import Callbacks

KINDS = ("first", "second", "derived")


@given(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4), watching=st.booleans(), by_type=st.booleans())
def falsify_removed_callbacks_get_no_later_event(subject: Any, kinds: list[str], watching: bool, by_type: bool) -> None:
    base, steps = Observer if watching else Callback, [list[int]() for _ in (*kinds, "added")]
    types = {name: type(name.title(), (base,), {}) for name in ("first", "second")}
    types["derived"] = type("Derived", (types["first"],), {})

    def made(number: int, kind: str) -> Any:
        """Return a callback with one hook: of its class, or of every second instance."""
        note = {"on_log": lambda at: steps[number].append(at.step)}
        one = type("One", (types[kind],), {} if number % 2 else {"on_log": lambda self, at: note["on_log"](at)})()
        vars(one).update(note if number % 2 else {})
        return one

    def hooks() -> list[str]:
        return [hook for hook in HOOKS if callbacks.has_callbacks(hook)]

    registered = [made(number, kind) for number, kind in enumerate(kinds)]
    target = types[kinds[0]] if by_type else registered[0]
    callbacks = subject.Callbacks(registered)
    has = [hooks()]
    callbacks.fire("on_log", context(1))
    callbacks.remove(target)
    has.append(hooks())
    callbacks.fire("on_log", context(2))
    callbacks.add(made(len(kinds), "second"))
    has.append(hooks())
    callbacks.fire("on_log", context(3))
    callbacks.close()
    has.append(hooks())
    gone = [isinstance(each, target) if by_type else each is target for each in registered]
    expected = [*([1] if is_gone else [1, 2, 3] for is_gone in gone), [3]]
    assert steps == expected, f"{target} is removed from {kinds}: they got {steps}; expected {expected}"
    expected_hooks = [["on_log"], ["on_log"] * (not all(gone)), ["on_log"], []]
    assert has == expected_hooks, f"{target} is removed from {kinds}: has_callbacks of {has}; expected {expected_hooks}"


def _mistakes(callbacks: Any, base: Any) -> dict[str, tuple[Callable[[], object], tuple[str, ...]]]:
    """Return calls that are refused, and the words of their refusals."""
    other, misspelt = type("Other", (base,), {}), type("Mine", (base,), {"on_logs": print})
    return {
        "fire of a misspelt hook": (
            lambda: callbacks.fire("on_step_ends", context(1)),
            ("on_step_ends", "on_step_end'"),
        ),
        "fire of an unknown hook": (lambda: callbacks.fire("on_fit_start", context(1)), ("on_fit_start", *HOOKS)),
        "has_callbacks of an unknown hook": (
            lambda: callbacks.has_callbacks("step_end"),
            ("'step_end'", "on_step_end"),
        ),
        "remove of an unregistered callback": (lambda: callbacks.remove(other()), ("Other", "Registered")),
        "remove of an unregistered type": (lambda: callbacks.remove(other), ("Other", "Registered")),
        "add of a misspelt hook": (lambda: callbacks.add(misspelt()), ("on_logs", "on_log'")),
        "add of a class": (lambda: callbacks.add(other), ("the class Other",)),
        "add of None": (lambda: callbacks.add(None), ("NoneType",)),
    }


@given(watching=st.booleans(), closed=st.booleans())
def falsify_mistakes_are_refused(subject: Any, watching: bool, closed: bool) -> None:
    base, seen = Observer if watching else Callback, list[int]()
    registered = type("Registered", (base,), {"on_log": lambda self, at: seen.append(at.step)})()
    callbacks = subject.Callbacks([registered])
    if closed:
        callbacks.close()
    for mistake, (call, words) in _mistakes(callbacks, base).items():
        assert_refused(mistake, call, *words, kind=CallbackError)
    callbacks.fire("on_log", context(1))
    callbacks.close()
    assert seen == [1] * (not closed), f"after the refusals, the registered callback has got {seen}"


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


@given(
    script=scripts(ANSWERS, fewest=1, most=2),
    observers=st.integers(1, 2),
    raises=st.none() | st.integers(0, 60),
    shared=st.booleans(),
)
def falsify_observers_see_the_whole_run(
    subject: Any, script: Script, observers: int, raises: int | None, shared: bool
) -> None:
    """Observers answer STOP, which has no effect. shared: callbacks are those of the caller, who closes them."""
    planned, recorder = lifecycle(script).calls, Recorder(script)
    seen: list[list[Call]] = [[] for _ in range(observers)]
    named = set[tuple[Any, ...]]()

    def act(callback: int, event: str, at: Any) -> Any:
        if raises is not None and len(recorder.calls) == raises:
            raise RuntimeError("raised on purpose")
        return recorder.act(callback, event, at)

    def note(number: int, hook: str, at: Any) -> Action:
        seen[number].append(Call(0, hook, at.epoch, at.step, at.micro_batch))
        named.add((at.run, at.attempt, at.hook == hook, at.rank, at.world_size))
        return Action.STOP

    watching = [observer(partial(note, number)) for number in range(observers)]
    before = set(threading.enumerate())
    given = parts() | {"identity": RunIdentity(run="mine", attempt=7)}
    registered = [*recording_callbacks(len(script.answers), act), *watching]
    callbacks: Any = Callbacks(registered) if shared else registered
    try:
        run(subject, script, callbacks, given)
    except RuntimeError:
        assert raises is not None, "the run ended with an error of its own"
    if shared:
        assert callbacks.has_callbacks("on_log"), "the run has closed the callbacks of its caller"
        callbacks.close()
    left = set(threading.enumerate()) - before
    assert not left, f"the run has ended; its observers still have {left}"
    count, expected = len(script.answers), planned[:: len(script.answers)]
    if raises is not None and raises < len(planned):
        at = planned[raises]
        ends = [Call(0, "on_train_end", at.epoch, at.taken)] if at.event != "on_train_end" else []
        expected = expected[: raises // count + 1] + ends
    for calls in seen:
        assert_same_calls(calls, expected)
    assert named == {("mine", 7, True, 0, 1)}, f"events name run, attempt, hook, rank and world size {named}"
