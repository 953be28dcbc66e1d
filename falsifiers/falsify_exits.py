"""Attacks on the ways out of a run: everybody hears its end once, and the caller sees why it ended.

The subject is that of `falsifiers.lifecycle`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import given as drawn
from hypothesis import strategies as st

from falsifiers.lifecycle import (
    ANSWERS,
    Recorder,
    Script,
    Told,
    assert_same_calls,
    callbacks,
    lifecycle,
    parts,
    run,
    scripts,
)

FAULTS = (RuntimeError, KeyboardInterrupt, SystemExit, StopIteration)
PLACES = st.integers(0, 200) | st.integers(-3, -1)  # from the end: among the calls of on_train_end
STEPPING = {
    "the batch function": ("batch_at", ""),
    "the learning rate": ("learning_rate", ""),
    "the teacher": ("teacher", "logits"),
    "the student": ("student", "forward"),
    "the optimizer": ("optimizer", "step"),
}


def _ended_by(
    subject: Any, script: Script, act: Callable[[int, str, Any], Any], given: dict[str, Any]
) -> BaseException:
    """The exception that a run ends with."""
    try:
        run(subject, script, callbacks(subject, len(script.answers), act), given)
    except AssertionError:
        raise
    except BaseException as error:
        return error
    raise AssertionError("the run ended as if nothing had been raised")


def _assert_counted(error: BaseException, script: Script, step: int) -> None:
    notes = getattr(error, "__notes__", [])
    says = f"after {step} of {script.total} steps"
    assert step == 0 or any(says in note for note in notes), f"{error!r} has the notes {notes}; expected {says!r}"


@drawn(script=scripts(ANSWERS, fewest=1), place=PLACES, fault=st.sampled_from(FAULTS))
def falsify_exception_in_a_hook(subject: Any, script: Script, place: int, fault: type[BaseException]) -> None:
    """Any hook of any callback raises: nobody is told anything but on_train_end, all once; the caller sees that one."""
    planned = lifecycle(script).told
    raising = planned[place % len(planned)]
    original = fault("raised on purpose")

    def before(call: int) -> None:
        if call == place % len(planned):
            raise original

    recorder = Recorder(script, before)
    seen = _ended_by(subject, script, recorder.act, parts(subject))
    ends = [Told(c, "on_train_end", raising.epoch, raising.step) for c in range(len(script.answers))]
    upto = planned if raising.event == "on_train_end" else planned[: planned.index(raising) + 1] + ends
    assert_same_calls(recorder.told, upto)
    assert seen is original, f"{raising} raised {original!r}; the caller sees {seen!r}"
    _assert_counted(seen, script, raising.step)
    _assert_last_loss_at_the_end(recorder)


def _assert_last_loss_at_the_end(recorder: Recorder) -> None:
    """Wherever a run ended, on_train_end is told of the last step's loss."""
    heard = list(zip(recorder.told, recorder.losses, strict=True))
    last = [None, *(loss for told, loss in heard if told.event == "on_step_end")][-1]
    odd = [loss for told, loss in heard if told.event == "on_train_end" and loss != last]
    assert not odd, f"on_train_end is told of the loss {odd[0]}; the last step's is {last}"


def _failing(given: dict[str, Any], who: str, at_step: int, error: BaseException) -> dict[str, Any]:
    """The parts of a run, of which one raises in that step."""
    calls, (part, method) = itertools.count(1), STEPPING[who]
    work = getattr(given[part], method) if method else given[part]

    def tried(*arguments: Any, **named: Any) -> Any:
        if next(calls) == at_step:
            raise error
        return work(*arguments, **named)

    if not method:
        return given | {part: tried}
    setattr(given[part], method, tried)
    return given


@drawn(
    script=scripts(st.none(), fewest=1),
    who=st.sampled_from(sorted(STEPPING)),
    at_step=st.integers(1, 12),
    fault=st.sampled_from(FAULTS),
)
def falsify_exception_in_a_step(
    subject: Any, script: Script, who: str, at_step: int, fault: type[BaseException]
) -> None:
    """What raises within step k ends the run with k - 1 steps: on_train_end of all once, and nothing else."""
    at_step = (at_step - 1) % script.total + 1
    original, recorder = fault("raised on purpose"), Recorder(script)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    given = _failing(parts(subject) | {"optimizer": optimizer}, who, at_step, original)
    seen = _ended_by(subject, script, recorder.act, given)
    planned = lifecycle(script).told
    first = next(n for n, told in enumerate(planned) if told.event == "on_step_end" and told.step == at_step)
    epoch = planned[first].epoch
    ends = [Told(c, "on_train_end", epoch, at_step - 1) for c in range(len(script.answers))]
    assert_same_calls(recorder.told, planned[:first] + ends)
    assert seen is original, f"{who} raised {original!r} in step {at_step}; the caller sees {seen!r}"
    _assert_counted(seen, script, at_step - 1)


@drawn(
    script=scripts(st.none(), fewest=2),
    failing=st.sets(st.integers(0, 2), min_size=1),
    fault=st.sampled_from(FAULTS),
    earlier=st.booleans(),
)
def falsify_exceptions_at_the_end(
    subject: Any, script: Script, failing: set[int], fault: type[BaseException], earlier: bool
) -> None:
    """Each on_train_end is called whatever others raise; the run's first exception is seen, later ones are notes."""
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

    seen = _ended_by(subject, script, act, parts(subject))
    heard = [told.callback for told in recorder.told if told.event == "on_train_end"]
    assert heard == list(range(len(script.answers))), f"on_train_end of {sorted(ends)} raised; it was heard by {heard}"
    first, *later = [error for error in (cause, *ends.values()) if error is not None]
    assert seen is first, f"the run ended by {first!r}; the caller sees {seen!r}"
    notes = getattr(seen, "__notes__", [])
    untold = [error for error in later if not any(f"{fault.__name__}: {error}" in note for note in notes)]
    assert not untold, f"{untold} aren't among the notes of {first!r}: {notes}"
    _assert_counted(seen, script, recorder.told[-1].step)


@drawn(
    script=scripts(st.none(), fewest=1),
    place=PLACES,
    answer=st.sampled_from([True, False, 0, 1, 2, "stop", "STOP", 2.0, (), Told]),
)
def falsify_other_answers_are_refused(subject: Any, script: Script, place: int, answer: Any) -> None:
    """What isn't an action is no answer: CallbackError with the hook and what it said, however true it is."""
    heard = [told for told in lifecycle(script).told if told.event != "on_train_end"]
    odd, recorder = heard[place % len(heard)], Recorder(script)

    def act(callback: int, event: str, context: Any) -> Any:
        recorder.act(callback, event, context)
        return answer if recorder.told[-1] == odd else None

    seen = _ended_by(subject, script, act, parts(subject))
    shown = (f"Recorder.{odd.event}", repr(answer))
    assert type(seen).__name__ == "CallbackError" and all(part in str(seen) for part in shown), (
        f"{odd} was answered with {answer!r}; the run ended by {seen!r}, expected a CallbackError that names {shown}"
    )
    ends = [Told(c, "on_train_end", odd.epoch, odd.step) for c in range(len(script.answers))]
    assert_same_calls(recorder.told, heard[: heard.index(odd) + 1] + ends)


@drawn(script=scripts(st.none(), fewest=1), place=st.integers(0, 3), odd=st.sampled_from(["class", "function", "None"]))
def falsify_what_is_no_callback_is_refused(subject: Any, script: Script, place: int, odd: str) -> None:
    """A class, a function or None among the callbacks: CallbackError with its place, before anything is told or run."""
    recorder = Recorder(script)
    told = callbacks(subject, len(script.answers), recorder.act)
    place = min(place, len(told))
    told.insert(place, {"class": subject.Callback, "function": recorder.act, "None": None}[odd])
    batches: list[int] = []
    try:
        run(subject, script, told, parts(subject) | {"batch_at": lambda epoch, k: batches.append(k)})
    except Exception as error:
        what = {"class": "its class instead of an instance", "function": "a method", "None": "a NoneType"}[odd]
        refused = type(error).__name__ == "CallbackError" and f"callback {place + 1} is {what};" in str(error)
        assert refused, f"callback {place + 1} is {what}: {error!r}"
    else:
        raise AssertionError(f"callback {place + 1} is a {odd}, and nobody said so")
    assert recorder.told == [] and batches == [], f"before the refusal {recorder.told} were told and {batches} read"
