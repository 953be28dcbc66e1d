"""Attacks on the lifecycle of a run: the order of hooks, the end of a run, isolation of hooks, and refused callbacks.

The subject is `training.loop`; `real_run` runs it on the smallest models.
"""

import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.callbacks import lifecycle as oracle
from falsifiers.callbacks.lifecycle import ANSWERS, ASKING, HOOKS, SILENT, Call, Recorder, Script, scripts
from falsifiers.callbacks.real_run import Raising, parts, recording_callbacks, run
from falsifiers.support.assertions import assert_equal, refusal
from falsifiers.support.oracles import assert_refused
from reference_trainer import Action, Callback, CallbackError, Context, Observer, Settings, distill
from reference_trainer.callbacks.dispatch import Callbacks
from reference_trainer.errors import CallbackNote

WITH_SKIP = scripts(st.sampled_from([None, "SKIP"]), fewest=1)
DIFFERENT_ANSWERS = st.builds(
    oracle.answering_once,
    scripts(st.none(), fewest=2),
    st.integers(0, 20),
    st.permutations(["SKIP", "STOP", None, "CONTINUE"]),
)


REPEATED_REQUESTS = ((None,) * 6 + ("LOG|EVALUATE", "LOG", "EVALUATE"),)
"""Answers of a callback that requests a log and an evaluation, and requests both again from on_log and on_evaluate."""


@given(script=scripts(ASKING, fewest=1))
@example(script=Script(epochs=1, steps_per_epoch=3, limit=None, answers=REPEATED_REQUESTS))
def falsify_asked_events_come_once(subject: Any, script: Script) -> None:
    """Request logs, evaluations and checkpoints by callbacks, in runs with and without intervals for them."""
    recorder = Recorder(script)
    run(subject, script, recording_callbacks(len(script.answers), recorder.act), parts())
    oracle.assert_same_calls(recorder.calls, oracle.lifecycle(script).calls)


@given(priorities=st.lists(st.integers(-2, 2), min_size=2, max_size=5), added=st.integers(-2, 2))
def falsify_callbacks_are_called_by_priority(subject: Any, priorities: list[int], added: int) -> None:
    """Compare the order at each event with a stable sort; a callback of priority `added` is added in on_epoch_begin."""
    calls: list[tuple[str, int]] = []

    def act(callback: int, event: str, context: Any) -> None:
        calls.append((event, callback))
        if (event, callback) == ("on_epoch_begin", 0):
            registered.add(late)

    *first, late = recording_callbacks(len(priorities) + 1, act)
    every = [*priorities, added]
    for callback, priority in zip([*first, late], every, strict=True):
        callback.priority = priority
    registered = Callbacks(first)
    run(subject, Script(1, 1, None, ((),), every=(1, 1, 1)), registered, parts())
    for place, event in enumerate(HOOKS):
        # on_train_begin and on_epoch_begin are the first two hooks; the late callback is called from the third on.
        present = every if place > 1 else priorities
        expected = sorted(range(len(present)), key=lambda number: (-present[number], number))
        actual = [number for name, number in calls if name == event]
        assert_equal(f"priorities {present}: callbacks called at {event}", actual, expected)


@given(script=scripts(ANSWERS) | oracle.scripts_with_one("STOP") | WITH_SKIP | DIFFERENT_ANSWERS)
def falsify_sequence_of_events(subject: Any, device: str, script: Script) -> None:
    """Compare all calls with the simulation; a callback that is appended to the list during the run is not called."""
    recorder, expected, count = Recorder(script), oracle.lifecycle(script), len(script.answers)
    *registered, late = recording_callbacks(count + 1, lambda *call: append_and_act(*call))

    def append_and_act(callback: int, event: str, context: Any) -> Any:
        assert callback < count, f"{event} was called on a callback that was appended to the list during the run"
        registered.append(late)
        return recorder.act(callback, event, context)

    result = run(subject, script, iter(registered), parts(device))
    oracle.assert_same_calls(recorder.calls, expected.calls)
    actual = result.steps_completed, result.stopped
    assert_equal("steps of the result, and whether it was stopped", actual, (expected.steps, expected.stopped))


FAULTS = st.sampled_from([RuntimeError, KeyboardInterrupt, SystemExit, StopIteration])
PLACES = st.integers(0, 200) | st.integers(-3, -1)  # negative ones, from the end, choose calls of on_train_end
SCRIPTS = scripts(st.none(), fewest=1)
Act = Callable[[int, str, Any], Any]


def _exception_of(
    case: str, subject: Any, script: Script, act: Act, arguments: dict[str, Any] | None = None
) -> BaseException:
    """Return the exception that a run raises whose callbacks call `act`; an AssertionError of `act` is not caught."""
    try:
        run(subject, script, recording_callbacks(len(script.answers), act), arguments or parts())
    except AssertionError:
        raise
    except BaseException as error:
        return error
    raise AssertionError(f"{case}; the run raised no exception")


def _assert_steps_noted(error: BaseException, script: Script, step: int) -> None:
    """Assert that a note of the exception has the number of steps taken, unless it is 0."""
    notes, expected = getattr(error, "__notes__", []), f"after {step} of {script.total} steps"
    assert step == 0 or any(expected in note for note in notes), (
        f"{error!r} has the notes {notes}; expected {expected!r}"
    )


def _assert_failed_at(
    recorder: Recorder, expected: list[Call], last: Call, error: object, cause: BaseException
) -> None:
    """Assert that a failed run has the `expected` calls, then on_train_end of each callback with the loss of `last`.

    last: the call at which the run failed. error: the exception that the caller caught, which must be `cause`.
    """
    ends = [Call(c, "on_train_end", last.epoch, last.taken) for c in range(len(recorder.script.answers))]
    oracle.assert_same_calls(recorder.calls, expected + ends)
    assert error is cause, f"{cause!r} was raised at {last}; the caller sees {error!r}"
    _assert_steps_noted(cause, recorder.script, last.taken)
    # The context has the loss of the step from on_optimizer_step on.
    updated = ("on_optimizer_step", "on_log", "on_evaluate", "on_save", "on_step_end")
    calls = list(zip(recorder.calls, recorder.losses, strict=True))
    expected_loss = [None, *(loss for call, loss in calls if call.event in updated)][-1]
    losses = [loss for call, loss in calls if call.event == "on_train_end"]
    assert_equal("loss in on_train_end of each callback", losses, [expected_loss] * len(losses))


@given(script=scripts(ANSWERS, fewest=1), place=PLACES, fault=FAULTS)
def falsify_exception_in_a_hook(subject: Any, script: Script, place: int, fault: type[BaseException]) -> None:
    """Raise in one call of every hook that the script reaches, `place` among the calls of this hook."""
    script = replace(script, every=(1, 1, 1))
    planned = oracle.lifecycle(script).calls
    for hook in HOOKS:
        if calls := [number for number, call in enumerate(planned) if call.event == hook]:
            _assert_exception_ends_the_run(subject, script, planned, calls[place % len(calls)], fault)


def _assert_exception_ends_the_run(
    subject: Any, script: Script, planned: list[Call], raising_at: int, fault: type[BaseException]
) -> None:
    raising, cause = planned[raising_at], fault("raised on purpose")

    def before(call: int) -> None:
        if call == raising_at:
            raise cause

    recorder = Recorder(script, before)
    error = _exception_of(f"{raising} raised {cause!r}", subject, script, recorder.act)
    # An exception in on_train_end skips no call; any other one skips all but on_train_end.
    expected = planned[: -len(script.answers)] if raising.event == "on_train_end" else planned[: raising_at + 1]
    _assert_failed_at(recorder, expected, raising, error, cause)
    if isinstance(cause, Exception):  # KeyboardInterrupt and SystemExit may lack the note
        notes = [str(note) for note in getattr(error, "__notes__", []) if isinstance(note, CallbackNote)]
        assert_equal(f"notes of an exception in {raising}", notes, [f"raised by Recorder.{raising.event}"])


PARTS = {
    "the data": ("batch_at", "", "on_before_forward"),
    "the learning rate": ("learning_rate", "", "on_before_forward"),
    "the teacher": ("teacher", "logits", "on_after_backward"),
    "the student": ("student", "forward", "on_after_backward"),
    "the optimizer": ("optimizer", "step", "on_optimizer_step"),
    "the evaluation": ("evaluate", "", "on_evaluate"),
    "the checkpoint": ("save", "", "on_save"),
}
"""Parts of a run: argument of `train`, method ("" for a callable), and the hook that follows if the method returns."""


@given(script=SCRIPTS, part=st.sampled_from(sorted(PARTS)), at_step=st.integers(1, 12), fault=FAULTS)
def falsify_exception_in_a_step(
    subject: Any, script: Script, part: str, at_step: int, fault: type[BaseException]
) -> None:
    name, method, event = PARTS[part]
    every = (script.every[0], int(name == "evaluate"), int(name == "save"))
    script = replace(script, accumulation=1, left=1, every=every)  # each part is called once a step
    step = (at_step - 1) % script.total + 1
    cause, recorder = fault("raised on purpose"), Recorder(script)
    arguments = parts() | {"optimizer": torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)}
    arguments[name] = Raising(arguments.get(name, lambda *arguments: {}), method, step, cause)
    error = _exception_of(f"{part} raised {cause!r} in step {step}", subject, script, recorder.act, arguments)
    # The run stops before the hook that would be called next if the part returned.
    planned = oracle.lifecycle(script).calls
    place = next(n for n, call in enumerate(planned) if (call.event, call.step) == (event, step))
    # At its evaluation and its checkpoint the step is taken and counts; before, it does not.
    last = replace(planned[place], event="on_step_end" if event in ("on_evaluate", "on_save") else "on_step_begin")
    _assert_failed_at(recorder, planned[:place], last, error, cause)


@given(
    script=scripts(st.none(), fewest=2),
    failing=st.sets(st.integers(0, 2), min_size=1),
    fault=FAULTS,
    earlier=st.booleans(),
)
def falsify_exceptions_in_on_train_end(
    subject: Any, script: Script, failing: set[int], fault: type[BaseException], earlier: bool
) -> None:
    """Raise in on_train_end of the `failing` callbacks; earlier: also in on_epoch_end of callback 0."""
    ends = {c: fault(f"raised by {c} on purpose") for c in sorted(failing) if c < len(script.answers)}
    cause = RuntimeError("the cause") if earlier or not ends else None
    recorder = Recorder(script)

    def act(callback: int, event: str, context: Any) -> None:
        recorder.act(callback, event, context)
        if event == "on_train_end" and callback in ends:
            raise ends[callback]
        if event == "on_epoch_end" and callback == 0 and cause is not None:
            raise cause

    error = _exception_of(f"on_train_end of callbacks {sorted(ends)} raised", subject, script, act)
    called = [call.callback for call in recorder.calls if call.event == "on_train_end"]
    case = f"on_train_end of callbacks {sorted(ends)} raised: callbacks whose on_train_end was called"
    assert_equal(case, called, list(range(len(script.answers))))
    first, *later = [exception for exception in (cause, *ends.values()) if exception is not None]
    assert error is first, f"the caller sees {error!r}; expected the first exception, {first!r}"
    notes = getattr(error, "__notes__", [])
    missing = [str(e) for e in later if not any(f"{fault.__name__}: {e}" in note for note in notes)]
    assert not missing, f"the notes of {first!r} are {notes}; expected also the later exceptions {missing}"
    _assert_steps_noted(error, script, recorder.calls[-1].step)


FIELDS = [field.name for field in fields(Context) if field.name != "memory"]  # memory differs between equal runs
CHANGING = 1
"""The number of the callback that changes what it receives; callback 0 is called before it, callback 2 after it."""


@given(script=SCRIPTS)
def falsify_a_hook_changes_its_own_context_only(subject: Any, script: Script) -> None:
    """Compare what other callbacks, an observer and the caller receive with a run in which no hook changes anything."""
    script = replace(script, answers=((),) * 3, every=(1, 1, 1))
    undisturbed, disturbed = (_received_values(subject, script, changes) for changes in (False, True))
    for expected, actual in zip(undisturbed, disturbed, strict=True):
        assert_equal(f"after callback {CHANGING} changed its own context", actual, expected)


def _received_values(subject: Any, script: Script, changes: bool) -> list[str]:
    """Return the values that other callbacks and an observer receive in a run, in order, and its result."""
    received, observed = list[str](), list[str]()

    def act(callback: int, event: str, context: Any) -> None:
        if callback == CHANGING and changes:
            _change_context(event, context)
        elif callback != CHANGING:
            received.extend(f"{name} of {event} of callback {callback}: {getattr(context, name)!r}" for name in FIELDS)

    def observe(self: Any, context: Any) -> None:
        observed.extend(f"{name} of an observer: {getattr(context, name)!r}" for name in FIELDS)

    metrics = {"hard_loss": 2.0, "lists": [1.0, {"inner": [2.0]}], "tensor": torch.ones(2)}
    observer = type("Observing", (Observer,), {"on_step_end": observe})()
    arguments = parts() | {"clock": lambda: 0.0, "evaluate": lambda: metrics}
    result = run(subject, script, [*recording_callbacks(3, act), observer], arguments)
    return [*received, *observed, f"the result: {result}"]


def _change_context(event: str, context: Any) -> None:
    """Change every mutable field in place; assert that no field can be assigned, and no unknown name can be read."""
    for name in ("lost", "validation", "epoch_step"):
        for kind, view in (("a context", context), ("a snapshot", context.snapshot())):
            message = refusal(lambda name=name, view=view: getattr(view, name), AttributeError)
            assert name in message, f"{event}: the unknown field {name!r} of {kind} was read; expected AttributeError"
    for name in FIELDS:
        message = refusal(lambda name=name: setattr(context, name, -1), AttributeError)
        assert message, f"{event}: context.{name} = -1 was accepted; expected AttributeError"
        _change_in_place(getattr(context, name))


def _change_in_place(value: Any) -> None:
    """Set tensors to 0, and add a value to dictionaries and lists, at every depth."""
    if isinstance(value, Tensor):
        value.zero_()
    for inner in [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ():
        _change_in_place(inner)
    if isinstance(value, dict):
        value["loss"] = value["hard_loss"] = -1
    elif isinstance(value, list):
        value.append(-1)


NO_ACTIONS = [True, False, 0, 1, "stop", "STOP", 2.0, ()]


@given(script=SCRIPTS, place=PLACES, answer=st.sampled_from(NO_ACTIONS), action=st.sampled_from(list(Action)))
def falsify_invalid_answers_are_refused(subject: Any, script: Script, place: int, answer: Any, action: Action) -> None:
    """Return a wrong value from every hook, and an action from on_save: the checkpoint is written without it."""
    script = replace(script, every=(1, 1, 1))
    calls = [call for call in oracle.lifecycle(script).calls if call.event != "on_train_end"]
    for hook in HOOKS[:-1]:
        of_hook = [call for call in calls if call.event == hook]
        for value in (answer, action) if hook == "on_save" else (answer,):
            _assert_answer_is_refused(subject, script, calls, of_hook[place % len(of_hook)], value)


def _assert_answer_is_refused(subject: Any, script: Script, calls: list[Call], invalid: Call, answer: Any) -> None:
    recorder = Recorder(script)

    def act(callback: int, event: str, context: Any) -> Any:
        recorder.act(callback, event, context)
        return answer if recorder.calls[-1] == invalid else None

    error = _exception_of(f"{invalid} returned {answer!r}", subject, script, act)
    expected = "expected None" if invalid.event in SILENT else "expected Action.CONTINUE"
    words = (f"Recorder.{invalid.event}", repr(answer), expected)
    assert isinstance(error, CallbackError) and all(word in str(error) for word in words), (
        f"{invalid} returned {answer!r}; the run raised {error!r}, expected a CallbackError that contains {words}"
    )
    _assert_failed_at(recorder, calls[: calls.index(invalid) + 1], invalid, error, error)


def _assert_refused_before(subject: Any, script: Script, callback: Any, place: int, *names: str) -> str:
    """Assert that a run refuses this callback at this position, and return the message.

    The message must contain the position, from 1, and the names; no hook is called and no batch is read before.
    """
    recorder, batches = Recorder(script), list[int]()
    registered = recording_callbacks(len(script.answers), recorder.act)
    place = min(place, len(registered))
    registered.insert(place, callback)
    arguments = parts()
    read = arguments["batch_at"]
    arguments["batch_at"] = lambda epoch, k: batches.append(k) or read(epoch, k)
    message = refusal(lambda: run(subject, script, registered, arguments), CallbackError)
    assert_equal("calls of hooks and batches before the refusal", (recorder.calls, batches), ([], []))
    missing = [name for name in (str(place + 1), *names) if not re.search(rf"\b{name}\b", message)]
    assert message and not missing, f"the refusal is {message!r}; expected a CallbackError that names {missing}"
    return message


POSITIONS = st.integers(0, 3)


@given(script=SCRIPTS, place=POSITIONS, kind=st.sampled_from(["type", "builtin_function_or_method", "NoneType"]))
def falsify_non_callbacks_are_refused(subject: Any, script: Script, place: int, kind: str) -> None:
    """Pass a class, a function or None in the list of callbacks, and in place of the list, to `train` and `distill`."""
    value: Any = {"type": Callback, "builtin_function_or_method": len, "NoneType": None}[kind]
    _assert_refused_before(subject, script, value, place)
    missing = Settings(data=Path("missing"))
    for words, start in (
        (f"a {kind};", lambda: distill(missing, callbacks=value)),
        (f"a {kind};", lambda: run(subject, script, value, parts())),
        ("callback 1 is ", lambda: distill(missing, callbacks=[value])),
    ):
        assert_refused(f"a {kind} for callbacks", start, words, kind=CallbackError)


async def _coroutine(*arguments: Any) -> None: ...


def _generator(*arguments: Any) -> Any:
    yield


def _plain(*arguments: Any) -> None: ...


NEVER_RUN = {_coroutine: "async", _generator: "generator"}


@st.composite
def uncalled_hooks(draw: st.DrawFn) -> tuple[str, Any, list[str]]:
    """Draw the name and function of a hook that would never be called, and the words that its refusal must contain.

    The hook has a misspelt name, a name of another framework, or a coroutine or generator whose body never runs.
    """
    hook, kind = draw(st.sampled_from(HOOKS)), draw(st.sampled_from(["misspelt", "foreign", "unawaited"]))
    if kind == "foreign":
        name = draw(st.sampled_from(["on_fit_start", "on_validation"]))
        return name, _plain, [name, *HOOKS]
    if kind == "unawaited":
        body = draw(st.sampled_from(list(NEVER_RUN)))
        return hook, body, [hook, NEVER_RUN[body]]
    at = draw(st.integers(3, len(hook) - 2))
    left_out, swapped = hook[:at] + hook[at + 1 :], hook[:at] + hook[at + 1] + hook[at] + hook[at + 2 :]
    name = draw(st.sampled_from([f"{hook}s", left_out, swapped]).filter(lambda name: name not in HOOKS))
    return name, _plain, [name, hook]


@given(script=SCRIPTS, place=POSITIONS, hook=uncalled_hooks(), origin=st.sampled_from(["class", "base", "instance"]))
def falsify_uncalled_hooks_are_refused(
    subject: Any, script: Script, place: int, hook: tuple[str, Any, list[str]], origin: str
) -> None:
    """Define such a hook in the class of a callback, in a base class or in the instance, as `origin` says."""
    name, body, words = hook
    base = type("Base", (Callback,), {name: body}) if origin == "base" else Callback
    callback = type("Mine", (base,), {name: body} if origin == "class" else {})()
    vars(callback).update({name: body} if origin == "instance" else {})
    message = _assert_refused_before(subject, script, callback, place, "Mine", *words)
    others = [other for other in HOOKS if other not in words and re.search(rf"\b{other}\b", message)]
    assert not others, f"the refusal of {name} is {message!r}; expected no other hook than {words}, got {others}"
