"""Attacks on the lifecycle of a run: the order of hooks, and how answers and exceptions end it. Subject: `real_run`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from hypothesis import given
from hypothesis import given as drawn
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import (
    ANSWERS,
    Call,
    Recorder,
    Script,
    answering_once,
    assert_same_calls,
    lifecycle,
    scripts,
    scripts_with_one,
)
from falsifiers.callbacks.real_run import Raising, parts, recording_callbacks, run
from reference_trainer.errors import CallbackNote

SKIPPING = scripts(st.sampled_from([None, "SKIP"]), fewest=1)
SEVERAL = st.builds(
    answering_once,
    scripts(st.none(), fewest=2),
    st.integers(0, 20),
    st.permutations(["SKIP", "STOP", None, "CONTINUE"]),
)


@given(script=scripts(ANSWERS) | scripts_with_one("STOP") | SKIPPING | SEVERAL)
def falsify_sequence_of_events(subject: Any, device: str, script: Script) -> None:
    """A callback that is appended during the run is not called."""
    recorder, expected, count = Recorder(script), lifecycle(script), len(script.answers)
    *registered, late = recording_callbacks(count + 1, lambda *call: join_and_act(*call))

    def join_and_act(callback: int, event: str, context: Any) -> Any:
        assert callback < count, f"{event} was called on a callback that was appended to the list during the run"
        registered.append(late)
        return recorder.act(callback, event, context)

    result = run(subject, script, iter(registered), parts(device))
    assert_same_calls(recorder.calls, expected.calls)
    assert (result.steps_completed, result.stopped) == (expected.steps, expected.stopped), (
        f"the result says {result.steps_completed} steps, stopped {result.stopped}; expected {expected.steps} steps, "
        f"stopped {expected.stopped}"
    )


FAULTS = (RuntimeError, KeyboardInterrupt, SystemExit, StopIteration)
PLACES = st.integers(0, 200) | st.integers(-3, -1)  # from the end: among the calls of on_train_end
UPDATED = ("on_optimizer_step", "on_log", "on_evaluate", "on_save", "on_step_end")


def exception_of(
    subject: Any, script: Script, act: Callable[[int, str, Any], Any], given: dict[str, Any]
) -> BaseException:
    """Return the exception that a run with recorders of `act` ends with."""
    try:
        run(subject, script, recording_callbacks(len(script.answers), act), given)
    except AssertionError:
        raise
    except BaseException as error:
        return error
    raise AssertionError("the run ended without an exception")


def _assert_counted(error: BaseException, script: Script, step: int) -> None:
    notes = getattr(error, "__notes__", [])
    says = f"after {step} of {script.total} steps"
    assert step == 0 or any(says in note for note in notes), f"{error!r} has the notes {notes}; expected {says!r}"


@drawn(script=scripts(ANSWERS, fewest=1), place=PLACES, fault=st.sampled_from(FAULTS))
def falsify_exception_in_a_hook(subject: Any, script: Script, place: int, fault: type[BaseException]) -> None:
    planned = lifecycle(script).calls
    raising = planned[place % len(planned)]
    original = fault("raised on purpose")

    def before(call: int) -> None:
        if call == place % len(planned):
            raise original

    recorder = Recorder(script, before)
    seen = exception_of(subject, script, recorder.act, parts())
    ends = [Call(c, "on_train_end", raising.epoch, raising.taken) for c in range(len(script.answers))]
    upto = planned if raising.event == "on_train_end" else planned[: planned.index(raising) + 1] + ends
    assert_same_calls(recorder.calls, upto)
    assert seen is original, f"{raising} raised {original!r}; the caller sees {seen!r}"
    notes = [str(note) for note in getattr(seen, "__notes__", []) if isinstance(note, CallbackNote)]
    named = [f"raised by Recorder.{raising.event}"]
    assert notes == named or not isinstance(original, Exception), f"{raising} raised; the notes on it are {notes}"
    _assert_counted(seen, script, raising.taken)
    _assert_last_loss_at_the_end(recorder)


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


@drawn(
    script=scripts(st.none(), fewest=1),
    part=st.sampled_from(sorted(STEPPING)),
    at_step=st.integers(1, 12),
    fault=st.sampled_from(FAULTS),
)
def falsify_exception_in_a_step(
    subject: Any, script: Script, part: str, at_step: int, fault: type[BaseException]
) -> None:
    name, method, event = STEPPING[part]
    every = (script.every[0], int(name == "evaluate"), int(name == "save"))
    script = replace(script, accumulation=1, left=1, every=every)  # each part is called once a step
    step = (at_step - 1) % script.total + 1
    original, recorder = fault("raised on purpose"), Recorder(script)
    given = parts() | {"optimizer": torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)}
    given[name] = Raising(given.get(name, lambda *arguments: {}), method, step, original)
    seen = exception_of(subject, script, recorder.act, given)
    planned = lifecycle(script).calls
    place = next(n for n, call in enumerate(planned) if (call.event, call.step) == (event, step))
    taken = step if event in ("on_evaluate", "on_save") else step - 1
    ends = [Call(c, "on_train_end", planned[place].epoch, taken) for c in range(len(script.answers))]
    assert_same_calls(recorder.calls, planned[:place] + ends)
    assert seen is original, f"{part} raised {original!r} in step {step}; the caller sees {seen!r}"
    _assert_counted(seen, script, taken)
    _assert_last_loss_at_the_end(recorder)


def _assert_last_loss_at_the_end(recorder: Recorder) -> None:
    """Assert that the context of on_train_end has the loss of the last step, of which no later hook may be called."""
    calls = list(zip(recorder.calls, recorder.losses, strict=True))
    last = [None, *(loss for call, loss in calls if call.event in UPDATED)][-1]
    odd = [loss for call, loss in calls if call.event == "on_train_end" and loss != last]
    assert not odd, f"on_train_end receives the loss {odd[0]}; the last step's is {last}"


@drawn(
    script=scripts(st.none(), fewest=2),
    failing=st.sets(st.integers(0, 2), min_size=1),
    fault=st.sampled_from(FAULTS),
    earlier=st.booleans(),
)
def falsify_exceptions_in_on_train_end(
    subject: Any, script: Script, failing: set[int], fault: type[BaseException], earlier: bool
) -> None:
    ends = {c: fault(f"raised by {c} on purpose") for c in sorted(failing) if c < len(script.answers)}
    cause = RuntimeError("the cause") if earlier or not ends else None
    recorder = Recorder(script)

    def act(callback: int, event: str, context: Any) -> Any:
        recorder.act(callback, event, context)
        if event == "on_train_end" and callback in ends:
            raise ends[callback]
        if event == "on_epoch_end" and callback == 0 and cause is not None:
            raise cause
        return None

    seen = exception_of(subject, script, act, parts())
    called = [call.callback for call in recorder.calls if call.event == "on_train_end"]
    assert called == list(range(len(script.answers))), f"on_train_end of {sorted(ends)} raised; called on {called}"
    first, *later = [error for error in (cause, *ends.values()) if error is not None]
    assert seen is first, f"the run ended by {first!r}; the caller sees {seen!r}"
    notes = getattr(seen, "__notes__", [])
    missing = [error for error in later if not any(f"{fault.__name__}: {error}" in note for note in notes)]
    assert not missing, f"{missing} are not among the notes of {first!r}: {notes}"
    _assert_counted(seen, script, recorder.calls[-1].step)
