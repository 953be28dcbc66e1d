"""Attacks on what a run hands over to be saved, and on the run that goes on from it. The subject is that of `kept`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import ANSWERS, Call, Script, assert_same_calls, lifecycle, scripts
from falsifiers.callbacks.real_run import parts
from falsifiers.run_states.kept import Kept, KeptRun, rest_of

SCRIPTS = scripts(st.none(), fewest=1) | scripts(ANSWERS, fewest=1)
PLACES = st.integers(0, 20)


def steps_of(calls: list[Call]) -> list[int]:
    """Return the steps of a run that ended, in order."""
    return [call.step for call in calls if call.event == "on_step_end" and call.callback == 0]


@given(script=SCRIPTS, every=st.tuples(*[st.integers(0, 3)] * 2), evaluating=st.booleans())
def falsify_evaluated_and_due_steps_are_handed_over(
    subject: Any, script: Script, every: tuple[int, int], evaluating: bool
) -> None:
    """`save` gets every step that is evaluated or due, once, in its step, and says which of both it is.

    If callbacks end the run after a step that is not due, it gets that too.
    """
    evaluate, save = every
    script = replace(script, every=(script.every[0], evaluate, save))
    run = KeptRun(subject, script, **({} if evaluating else {"evaluate": None}))
    got = [(kept.state.position.step, kept.evaluated, kept.due) for kept in run.kept if kept.evaluated or kept.due]
    steps = steps_of(lifecycle(script if evaluating else replace(script, every=(0, 0, save))).calls)
    expected = [(s, evaluating and evaluate > 0 and s % evaluate == 0, script.is_saved(s)) for s in steps]
    wanted = [each for each in expected if any(each[1:])]
    wanted += [(steps[-1], False, True)] if save and steps and not script.is_saved(steps[-1]) else []
    assert got == wanted, f"(step, evaluated, due) of the saves are {got}; expected {wanted}"


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Script, int]:
    """Draw a script that saves, and a number that chooses the save to go on from."""
    script = draw(SCRIPTS)
    return replace(script, every=(*script.every[:2], draw(st.integers(1, 3)))), draw(PLACES)


def cut(subject: Any, script: Script, place: int) -> tuple[KeptRun, Kept]:
    """Return a whole run, and one of the steps that it handed over."""
    run = KeptRun(subject, script)
    assume(run.kept)
    return run, run.kept[place % len(run.kept)]


@given(drawn=cuts(), named=st.booleans())
def falsify_a_run_goes_on_from_a_saved_step(subject: Any, drawn: tuple[Script, int], named: bool) -> None:
    script, place = drawn
    _, kept = cut(subject, script, place)
    rest, expected = rest_of(script, kept.state.position, named=named)
    run = KeptRun(subject, rest, resumed=kept, named=named)
    assert_same_calls(run.calls, expected)
    whole = lifecycle(script)
    got = run.result.steps_completed, run.result.stopped
    assert got == (whole.steps, whole.stopped), f"steps and stopped are {got}; expected {(whole.steps, whole.stopped)}"


@given(drawn=cuts())
def falsify_states_of_callbacks_are_those_of_the_step(subject: Any, drawn: tuple[Script, int]) -> None:
    script, place = drawn
    _, kept = cut(subject, script, place)
    count = len(script.answers)
    rest, _ = rest_of(script, kept.state.position, named=True)
    got = KeptRun(subject, rest, resumed=kept).loaded
    expected = [(0, number, {"events": kept.calls // count}) for number in range(count)]
    assert got == expected, f"(calls before, callback, its state) are {got}; expected {expected}"


@given(drawn=cuts())
def falsify_seconds_add_up(subject: Any, drawn: tuple[Script, int]) -> None:
    script, place = drawn
    _, kept = cut(subject, script, place)
    seconds = kept.state.elapsed_s
    assert seconds == kept.calls, f"saved {kept.calls} s after the begin, the state has {seconds} s"
    rest, expected = rest_of(script, kept.state.position, named=True)
    run = KeptRun(subject, rest, resumed=kept)
    wanted = [seconds + call // len(script.answers) * len(script.answers) for call in range(len(expected))]
    assert run.elapsed == wanted, f"resumed after {seconds} s, the events are at {run.elapsed}; expected {wanted}"
    total = run.result.elapsed_s
    assert total == seconds + len(expected), f"{seconds} and {len(expected)} s make {total} s"


@given(script=SCRIPTS, epochs=st.integers(2, 3))
def falsify_an_evaluation_is_kept(subject: Any, script: Script, epochs: int) -> None:
    """Metrics of the last evaluation stay as they were measured, whatever the evaluator does with its mapping."""
    script = replace(script, epochs=epochs, every=(script.every[0], 2, 1))
    measured: dict[str, float] = {}
    evaluations: list[float] = []

    def evaluate() -> dict[str, float]:
        evaluations.append(len(evaluations) + 0.5)
        measured["hard_loss"] = evaluations[-1]
        return measured

    def batch_at(epoch: int, k: int) -> Any:
        measured.clear()
        return parts()["batch_at"](epoch, k)

    run = KeptRun(subject, script, evaluate=evaluate, batch_at=batch_at)
    for kept in run.kept:
        step = kept.state.position.step
        wanted = {"hard_loss": evaluations[step // 2 - 1]} if step >= 2 else {}
        got = kept.state.validation
        assert got == wanted, f"saved after step {step}, the last evaluation is {got}; expected {wanted}"
    last = {"hard_loss": evaluations[-1]} if evaluations else {}
    assert run.result.validation == last, f"the result has {run.result.validation}; the last evaluation was {last}"
