"""Attacks on what a run hands over to be saved, and on the run that goes on from it. The subject is that of `kept`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import ANSWERS, Call, Script, assert_same_calls, lifecycle, scripts
from falsifiers.run_states.kept import KeptRun, rest_of

SCRIPTS = scripts(st.none(), fewest=1) | scripts(ANSWERS, fewest=1)
PLACES = st.integers(0, 20)


def steps_of(calls: list[Call]) -> list[int]:
    """Return the steps of a run that ended, in order."""
    return [call.step for call in calls if call.event == "on_step_end" and call.callback == 0]


@given(script=SCRIPTS, every=st.tuples(*[st.integers(0, 3)] * 2), evaluating=st.booleans())
def falsify_evaluated_and_due_steps_are_handed_over(
    subject: Any, script: Script, every: tuple[int, int], evaluating: bool
) -> None:
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


@given(drawn=cuts(), named=st.booleans())
def falsify_a_run_goes_on_from_a_saved_step(subject: Any, drawn: tuple[Script, int], named: bool) -> None:
    """With its events, the states of its callbacks, and its seconds, which the clock of a `KeptRun` counts in calls."""
    script, place = drawn
    whole = KeptRun(subject, script)
    assume(whole.kept)
    kept, count = whole.kept[place % len(whole.kept)], len(script.answers)
    rest, expected = rest_of(script, kept.state.position, named=named)
    run = KeptRun(subject, rest, resumed=kept, named=named)
    assert_same_calls(run.calls, expected)
    planned, result = lifecycle(script), run.result
    got, wanted = (result.steps_completed, result.stopped), (planned.steps, planned.stopped)
    assert got == wanted, f"steps and stopped are {got}; expected {wanted}"
    states = [(0, number, {"events": kept.calls // count}) for number in range(count)]
    assert run.loaded == states, f"(calls before, callback, its state) are {run.loaded}; expected {states}"
    seconds = kept.state.elapsed_s
    assert seconds == kept.calls, f"saved {kept.calls} s after the begin, the state has {seconds} s"
    times = [seconds + call // count * count for call in range(len(expected))]
    assert run.elapsed == times, f"resumed after {seconds} s, the events are at {run.elapsed}; expected {times}"
    total = run.result.elapsed_s
    assert total == seconds + len(expected), f"{seconds} and {len(expected)} s make {total} s"
