"""Attacks on the lifecycle of a run: the order of hooks, the ends of a run, isolation, and refused callbacks.

The subject is the one of `real_run`.
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
from falsifiers.callbacks.lifecycle import (
    ANSWERS,
    ASKING,
    HOOKS,
    SILENT,
    Call,
    Recorder,
    Script,
    assert_same_calls,
    scripts,
)
from falsifiers.callbacks.real_run import Raising, parts, recording_callbacks, run
from falsifiers.support.assertions import assert_equal, refusal
from falsifiers.support.oracles import assert_refused
from reference_trainer import Action, Callback, CallbackError, Context, Observer, Settings, distill
from reference_trainer.callbacks.dispatch import Callbacks
from reference_trainer.errors import CallbackNote

SKIPPING = scripts(st.sampled_from([None, "SKIP"]), fewest=1)
SEVERAL = st.builds(
    oracle.answering_once,
    scripts(st.none(), fewest=2),
    st.integers(0, 20),
    st.permutations(["SKIP", "STOP", None, "CONTINUE"]),
)


AGAIN = ((None,) * 6 + ("LOG|EVALUATE", "LOG", "EVALUATE"),)
"""Answers of a callback that asks for a log and an evaluation, and again while they are carried out."""


@given(script=scripts(ASKING, fewest=1))
@example(script=Script(epochs=1, steps_per_epoch=3, limit=None, answers=AGAIN))
def falsify_asked_events_come_once(subject: Any, script: Script) -> None:
    """Evaluations, logs and checkpoints that callbacks ask for, of runs that may have none of their own."""
    recorder = Recorder(script)
    run(subject, script, recording_callbacks(len(script.answers), recorder.act), parts())
    assert_same_calls(recorder.calls, oracle.lifecycle(script).calls)


@given(priorities=st.lists(st.integers(-2, 2), min_size=2, max_size=5), added=st.integers(-2, 2))
def falsify_callbacks_are_called_by_priority(subject: Any, priorities: list[int], added: int) -> None:
    """A stable sort, with one that is added during the run, at every event."""
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
    run(subject, Script(1, 1, None, ((),)), registered, parts())
    for place, event in enumerate(name for name in HOOKS if name not in ("on_log", "on_evaluate", "on_save")):
        present = every if place > 1 else priorities
        expected = sorted(range(len(present)), key=lambda number: (-present[number], number))
        seen = [number for name, number in calls if name == event]
        assert_equal(f"priorities {present}: callbacks called at {event}", seen, expected)


@given(script=scripts(ANSWERS) | oracle.scripts_with_one("STOP") | SKIPPING | SEVERAL)
def falsify_sequence_of_events(subject: Any, device: str, script: Script) -> None:
    """A callback that is appended during the run is not called."""
    recorder, expected, count = Recorder(script), oracle.lifecycle(script), len(script.answers)
    *registered, late = recording_callbacks(count + 1, lambda *call: append_and_act(*call))

    def append_and_act(callback: int, event: str, context: Any) -> Any:
        assert callback < count, f"{event} was called on a callback that was appended to the list during the run"
        registered.append(late)
        return recorder.act(callback, event, context)

    result = run(subject, script, iter(registered), parts(device))
    assert_same_calls(recorder.calls, expected.calls)
    seen = result.steps_completed, result.stopped
    assert_equal("steps of the result, and whether it was stopped", seen, (expected.steps, expected.stopped))


FAULTS = st.sampled_from([RuntimeError, KeyboardInterrupt, SystemExit, StopIteration])
PLACES = st.integers(0, 200) | st.integers(-3, -1)  # from the end: among the calls of on_train_end
SCRIPTS = scripts(st.none(), fewest=1)
Act = Callable[[int, str, Any], Any]


def _exception_of(subject: Any, script: Script, act: Act, arguments: dict[str, Any] | None = None) -> BaseException:
    """Return the exception that a run with recorders of `act` ends with."""
    try:
        run(subject, script, recording_callbacks(len(script.answers), act), arguments or parts())
    except AssertionError:
        raise
    except BaseException as error:
        return error
    raise AssertionError("the run ended without an exception")


def _assert_counted(error: BaseException, script: Script, step: int) -> None:
    notes, expected = getattr(error, "__notes__", []), f"after {step} of {script.total} steps"
    assert step == 0 or any(expected in note for note in notes), f"{error!r} has the notes {notes}; not {expected!r}"


def _assert_ended(recorder: Recorder, expected: list[Call], last: Call, error: object, cause: BaseException) -> None:
    """Assert the calls until the run failed with this cause, then on_train_end of each callback with the last loss."""
    ends = [Call(c, "on_train_end", last.epoch, last.taken) for c in range(len(recorder.script.answers))]
    assert_same_calls(recorder.calls, expected + ends)
    assert error is cause, f"{cause!r} was raised at {last}; the caller sees {error!r}"
    _assert_counted(cause, recorder.script, last.taken)
    updated = ("on_optimizer_step", "on_log", "on_evaluate", "on_save", "on_step_end")
    calls = list(zip(recorder.calls, recorder.losses, strict=True))
    loss = [None, *(loss for call, loss in calls if call.event in updated)][-1]
    odd = [seen for call, seen in calls if call.event == "on_train_end" and seen != loss]
    assert not odd, f"on_train_end receives the loss {odd[0]}; the last step's is {loss}"


@given(script=scripts(ANSWERS, fewest=1), place=PLACES, fault=FAULTS)
def falsify_exception_in_a_hook(subject: Any, script: Script, place: int, fault: type[BaseException]) -> None:
    planned, cause = oracle.lifecycle(script).calls, fault("raised on purpose")
    raising = planned[place % len(planned)]

    def before(call: int) -> None:
        if call == place % len(planned):
            raise cause

    recorder = Recorder(script, before)
    error = _exception_of(subject, script, recorder.act)
    at = planned.index(raising) + 1
    upto = planned[: -len(script.answers)] if raising.event == "on_train_end" else planned[:at]
    _assert_ended(recorder, upto, raising, error, cause)
    notes = [str(note) for note in getattr(error, "__notes__", []) if isinstance(note, CallbackNote)]
    named = [f"raised by Recorder.{raising.event}"]
    assert notes == named or not isinstance(cause, Exception), f"{raising} raised; the notes on it are {notes}"


STEPPING = {
    "the data": ("batch_at", "", "on_before_forward"),
    "the learning rate": ("learning_rate", "", "on_before_forward"),
    "the teacher": ("teacher", "logits", "on_after_backward"),
    "the student": ("student", "forward", "on_after_backward"),
    "the optimizer": ("optimizer", "step", "on_optimizer_step"),
    "the evaluation": ("evaluate", "", "on_evaluate"),
    "the checkpoint": ("save", "", "on_save"),
}
"""Parts of a run with their method, and the hook of the step that is called next if they return."""


@given(script=SCRIPTS, part=st.sampled_from(sorted(STEPPING)), at_step=st.integers(1, 12), fault=FAULTS)
def falsify_exception_in_a_step(
    subject: Any, script: Script, part: str, at_step: int, fault: type[BaseException]
) -> None:
    name, method, event = STEPPING[part]
    every = (script.every[0], int(name == "evaluate"), int(name == "save"))
    script = replace(script, accumulation=1, left=1, every=every)  # each part is called once a step
    step = (at_step - 1) % script.total + 1
    cause, recorder = fault("raised on purpose"), Recorder(script)
    arguments = parts() | {"optimizer": torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)}
    arguments[name] = Raising(arguments.get(name, lambda *arguments: {}), method, step, cause)
    error = _exception_of(subject, script, recorder.act, arguments)
    # The run stops before the hook that would be called next if the part returned.
    planned = oracle.lifecycle(script).calls
    place = next(n for n, call in enumerate(planned) if (call.event, call.step) == (event, step))
    # The update of the step is not taken before its evaluation and its checkpoint.
    last = replace(planned[place], event="on_step_end" if event in ("on_evaluate", "on_save") else "on_step_begin")
    _assert_ended(recorder, planned[:place], last, error, cause)


@given(
    script=scripts(st.none(), fewest=2),
    failing=st.sets(st.integers(0, 2), min_size=1),
    fault=FAULTS,
    earlier=st.booleans(),
)
def falsify_exceptions_in_on_train_end(
    subject: Any, script: Script, failing: set[int], fault: type[BaseException], earlier: bool
) -> None:
    ends = {c: fault(f"raised by {c} on purpose") for c in sorted(failing) if c < len(script.answers)}
    cause = RuntimeError("the cause") if earlier or not ends else None
    recorder = Recorder(script)

    def act(callback: int, event: str, context: Any) -> None:
        recorder.act(callback, event, context)
        if event == "on_train_end" and callback in ends:
            raise ends[callback]
        if event == "on_epoch_end" and callback == 0 and cause is not None:
            raise cause

    error = _exception_of(subject, script, act)
    called = [call.callback for call in recorder.calls if call.event == "on_train_end"]
    assert_equal(f"on_train_end of {sorted(ends)} raised; called on", called, list(range(len(script.answers))))
    first, *later = [raised for raised in (cause, *ends.values()) if raised is not None]
    assert error is first, f"the run ended by {first!r}; the caller sees {error!r}"
    notes = getattr(error, "__notes__", [])
    missing = [raised for raised in later if not any(f"{fault.__name__}: {raised}" in note for note in notes)]
    assert not missing, f"{missing} are not among the notes of {first!r}: {notes}"
    _assert_counted(error, script, recorder.calls[-1].step)


FIELDS = [field.name for field in fields(Context) if field.name != "memory"]  # the memory of a process is its own
CHANGING = 1
"""The number of the callback that changes what it receives; callback 0 is called before it, callback 2 after it."""


@given(script=SCRIPTS)
def falsify_a_hook_changes_its_own_context_only(subject: Any, script: Script) -> None:
    script = replace(script, answers=((),) * 3, every=(1, 1, 1))
    undisturbed, disturbed = (_received(subject, script, changes) for changes in (False, True))
    for expected, seen in zip(undisturbed, disturbed, strict=True):
        assert_equal(f"after callback {CHANGING} changed its own context", seen, expected)


def _received(subject: Any, script: Script, changes: bool) -> list[str]:
    """Return the values that other callbacks and an observer receive in a run, in order, and its result."""
    notes, observed = list[str](), list[str]()

    def act(callback: int, event: str, context: Any) -> None:
        if callback == CHANGING and changes:
            _change(event, context)
        elif callback != CHANGING:
            notes.extend(f"{name} of {event} of callback {callback}: {getattr(context, name)!r}" for name in FIELDS)

    def observe(self: Any, context: Any) -> None:
        observed.extend(f"{name} of an observer: {getattr(context, name)!r}" for name in FIELDS)

    metrics = {"hard_loss": 2.0, "lists": [1.0, {"inner": [2.0]}], "tensor": torch.ones(2)}
    observer = type("Observing", (Observer,), {"on_step_end": observe})()
    arguments = parts() | {"clock": lambda: 0.0, "evaluate": lambda: metrics}
    result = run(subject, script, [*recording_callbacks(3, act), observer], arguments)
    return [*notes, *observed, f"the result: {result}"]


def _change(event: str, context: Any) -> None:
    """Change every field; assert that none can be assigned, and that other names cannot be read."""
    for name in ("lost", "validation", "epoch_step"):
        for kind, view in (("a context", context), ("a snapshot", context.snapshot())):
            message = refusal(lambda name=name, view=view: getattr(view, name), AttributeError)
            assert name in message, f"{event}: {name!r} is no field of {kind}; reading it: {message or 'accepted'}"
    for name in FIELDS:
        message = refusal(lambda name=name: setattr(context, name, -1), AttributeError)
        assert message, f"{event}: context.{name} = -1 was accepted; expected AttributeError"
        _spoil(getattr(context, name))


def _spoil(value: Any) -> None:
    if isinstance(value, Tensor):
        value.zero_()
    for inner in [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ():
        _spoil(inner)
    if isinstance(value, dict):
        value["loss"] = value["hard_loss"] = -1
    elif isinstance(value, list):
        value.append(-1)


ODD = [True, False, 0, 1, "stop", "STOP", 2.0, ()]


@given(script=SCRIPTS, place=PLACES, answer=st.sampled_from([*ODD, *Action]))
def falsify_invalid_answers_are_refused(subject: Any, script: Script, place: int, answer: Any) -> None:
    """An action is an answer to every hook but on_save, at which a checkpoint has it no more."""
    script = replace(script, every=(*script.every[:2], 1)) if isinstance(answer, Action) else script
    calls = [call for call in oracle.lifecycle(script).calls if call.event != "on_train_end"]
    refusing = [call for call in calls if call.event == "on_save" or not isinstance(answer, Action)]
    invalid, recorder = refusing[place % len(refusing)], Recorder(script)

    def act(callback: int, event: str, context: Any) -> Any:
        recorder.act(callback, event, context)
        return answer if recorder.calls[-1] == invalid else None

    error = _exception_of(subject, script, act)
    expected = "expected None" if invalid.event in SILENT else "expected Action.CONTINUE"
    words = (f"Recorder.{invalid.event}", repr(answer), expected)
    assert isinstance(error, CallbackError) and all(word in str(error) for word in words), (
        f"{invalid} was answered with {answer!r}; the run ended with {error!r}, expected a CallbackError naming {words}"
    )
    _assert_ended(recorder, calls[: calls.index(invalid) + 1], invalid, error, error)


def _assert_refused_before(subject: Any, script: Script, callback: Any, place: int, *names: str) -> str:
    """Return the message of a run with this callback, which has its position and these names, in any words.

    Assert that nothing was called or read before the refusal.
    """
    recorder, batches = Recorder(script), list[int]()
    registered = recording_callbacks(len(script.answers), recorder.act)
    place = min(place, len(registered))
    registered.insert(place, callback)
    arguments = parts()
    read = arguments["batch_at"]
    arguments["batch_at"] = lambda epoch, k: batches.append(k) or read(epoch, k)
    message = refusal(lambda: run(subject, script, registered, arguments), CallbackError)
    assert recorder.calls == [] and batches == [], f"before the refusal came {recorder.calls}, batches {batches}"
    missing = [name for name in (str(place + 1), *names) if not re.search(rf"\b{name}\b", message)]
    assert message and not missing, f"refused with {message!r}; expected a CallbackError that names {missing}"
    return message


POSITIONS = st.integers(0, 3)


@given(script=SCRIPTS, place=POSITIONS, kind=st.sampled_from(["type", "builtin_function_or_method", "NoneType"]))
def falsify_non_callbacks_are_refused(subject: Any, script: Script, place: int, kind: str) -> None:
    """In a list of callbacks, and in place of the list, where `distill` refuses it too."""
    odd: Any = {"type": Callback, "builtin_function_or_method": len, "NoneType": None}[kind]
    _assert_refused_before(subject, script, odd, place)
    missing = Settings(data=Path("missing"))
    for words, start in (
        (f"a {kind};", lambda: distill(missing, callbacks=odd)),
        (f"a {kind};", lambda: run(subject, script, odd, parts())),
        ("callback 1 is ", lambda: distill(missing, callbacks=[odd])),
    ):
        assert_refused(f"a {kind} for callbacks", start, words, kind=CallbackError)


async def _coroutine(*arguments: Any) -> None: ...


def _generator(*arguments: Any) -> Any:
    yield


def _plain(*arguments: Any) -> None: ...


UNAWAITED = {_coroutine: "async", _generator: "generator"}


@st.composite
def uncalled(draw: st.DrawFn) -> tuple[str, Any, list[str]]:
    """Draw a hook that would not be called, and the words of its refusal: misspelt, foreign, or never awaited."""
    hook, kind = draw(st.sampled_from(HOOKS)), draw(st.sampled_from(["misspelt", "foreign", "unawaited"]))
    if kind == "foreign":
        name = draw(st.sampled_from(["on_fit_start", "on_validation"]))
        return name, _plain, [name, *HOOKS]
    if kind == "unawaited":
        body = draw(st.sampled_from(list(UNAWAITED)))
        return hook, body, [hook, UNAWAITED[body]]
    at = draw(st.integers(3, len(hook) - 2))
    left_out, swapped = hook[:at] + hook[at + 1 :], hook[:at] + hook[at + 1] + hook[at] + hook[at + 2 :]
    name = draw(st.sampled_from([f"{hook}s", left_out, swapped]).filter(lambda name: name not in HOOKS))
    return name, _plain, [name, hook]


@given(script=SCRIPTS, place=POSITIONS, odd=uncalled(), origin=st.sampled_from(["class", "base", "instance"]))
def falsify_uncalled_hooks_are_refused(
    subject: Any, script: Script, place: int, odd: tuple[str, Any, list[str]], origin: str
) -> None:
    """origin: where the callback has the hook: in its class, in a base class or in the instance."""
    name, body, words = odd
    base = type("Base", (Callback,), {name: body}) if origin == "base" else Callback
    callback = type("Mine", (base,), {name: body} if origin == "class" else {})()
    vars(callback).update({name: body} if origin == "instance" else {})
    message = _assert_refused_before(subject, script, callback, place, "Mine", *words)
    others = [hook for hook in HOOKS if hook not in words and re.search(rf"\b{hook}\b", message)]
    assert not others, f"{name} was refused with {message!r}, which names {others} too"
