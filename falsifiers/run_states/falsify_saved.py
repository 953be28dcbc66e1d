"""Attacks on the states that a run saves, and on requests to stop."""

import time
from dataclasses import replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import ANSWERS, Call, Script, answering_once, assert_same_calls, lifecycle, scripts
from falsifiers.callbacks.real_run import parts, run
from falsifiers.run_states.kept import Kept, KeptRun, rate_of, rest_of
from reference_trainer.callbacks.dispatch import Observer

SCRIPTS = scripts(st.none(), fewest=1) | scripts(ANSWERS, fewest=1)
PLACES, ASKED = st.integers(0, 20), st.integers(0, 300)


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


Cut = tuple[Script, int, int | None]
"""A script, a number that chooses the save to go on from, and the call in which the run is asked to stop, if it is."""


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    """Draw a script that saves, or whose run is asked to stop, also by the event that a callback answers."""
    script, asked = draw(SCRIPTS), draw(st.sampled_from(["never", "anywhere", "with an answer"]))
    if asked == "never":
        return replace(script, every=(*script.every[:2], draw(st.integers(1, 3)))), draw(PLACES), None
    if asked == "anywhere":
        return script, -1, draw(ASKED) % len(lifecycle(script).calls)
    script = answering_once(script, draw(ASKED), [draw(st.sampled_from(["SKIP", "STOP"]))])
    return script, -1, (len(script.answers[0]) - 1) * len(script.answers)


@given(drawn=cuts(), named=st.booleans())
def falsify_a_run_goes_on_from_a_saved_step(subject: Any, drawn: Cut, named: bool) -> None:
    """With its events, the states of its callbacks, and its seconds, which the clock of a `KeptRun` counts in calls."""
    script, place, asked_at = drawn
    whole = KeptRun(subject, script, asked_at=asked_at)
    assume(whole.kept if asked_at is None else whole.left)
    kept, count = whole.kept[place % len(whole.kept)], len(script.answers)
    rest, expected = rest_of(script, kept.state.position, named=named)
    run = KeptRun(subject, rest, resumed=kept, named=named)
    assert_same_calls(run.calls, expected)
    if asked_at is not None:
        _assert_states_before_the_step_ends(script, kept, run.loaded)
        return
    planned, result = lifecycle(script), run.result
    got, wanted = (result.steps_completed, result.stopped), (planned.steps, planned.stopped)
    assert got == wanted, f"steps and stopped are {got}; expected {wanted}"
    _assert_same_contexts(whole, run)
    states = [(0, number, {"events": kept.calls // count}) for number in range(count)]
    assert run.loaded == states, f"(calls before, callback, its state) are {run.loaded}; expected {states}"
    seconds = kept.state.elapsed_s
    assert seconds == kept.calls, f"saved {kept.calls} s after the begin, the state has {seconds} s"
    times = [seconds + call // count * count for call in range(len(expected))]
    assert run.elapsed == times, f"resumed after {seconds} s, the events are at {run.elapsed}; expected {times}"
    total = run.result.elapsed_s
    assert total == seconds + len(expected), f"{seconds} and {len(expected)} s make {total} s"


def _assert_same_contexts(whole: KeptRun, run: KeptRun) -> None:
    """Assert that contexts are those of the whole run; the one of the begin has the rate of the saved step."""
    known, (first, *_) = dict(zip(whole.calls, whole.known, strict=True)), run.known
    step = run.calls[0].step
    assert first["learning_rate"] == rate_of(step), f"resumed after step {step}, the rate is {first['learning_rate']}"
    for call, seen in zip(run.calls, run.known, strict=True):
        if call.event not in ("on_train_begin", "on_save"):
            assert seen == known[call], f"resumed after step {step}, {call} has {seen}; expected {known[call]}"


def _assert_states_before_the_step_ends(script: Script, kept: Kept, loaded: list[tuple[int, int, Any]]) -> None:
    """Assert that callbacks get back the states before the events of the step that follow again."""
    step, count = kept.state.position.step, len(script.answers)
    hook = "on_save" if script.is_saved(step) else "on_step_end"
    calls = lifecycle(script).calls
    events = next(place for place, call in enumerate(calls) if (call.event, call.step) == (hook, step)) // count
    got, states = [each[1:] for each in loaded], [(number, {"events": events}) for number in range(count)]
    assert got == states, f"asked to stop in step {step}, the callbacks get back {got}; expected {states}"


class Slow(Observer):
    """An observer that takes its time for each step."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_optimizer_step(self, context: Any) -> None:
        time.sleep(0.002)
        self.steps.append(context.step)


@given(script=scripts(st.none()), save=st.integers(1, 3))
def falsify_a_step_is_saved_after_its_observers(subject: Any, script: Script, save: int) -> None:
    slow, seen = Slow(), list[tuple[int, list[int]]]()

    def handed_over(state: Any) -> None:
        seen.append((state.position.step, list(slow.steps)))

    script = replace(script, every=(*script.every[:2], save))
    run(subject, script, [slow], parts() | {"save": handed_over})
    late = [(step, steps) for step, steps in seen if steps != list(range(1, step + 1))]
    assert not late, f"(saved step, steps that the observer has taken before) are {late}"


@st.composite
def failing(draw: st.DrawFn) -> tuple[Script, int]:
    """Draw a script with the call of an on_step_begin, of a step after the first, whose data are fetched."""
    silent = draw(scripts(st.none(), fewest=1))
    count, calls = len(silent.answers), lifecycle(silent).calls
    begins = [n for n, call in enumerate(calls) if (call.event, call.callback) == ("on_step_begin", 0) and call.taken]
    assume(begins)
    return silent, begins[draw(ASKED) % len(begins)] + draw(st.integers(0, count - 1))


@given(drawn=failing())
def falsify_a_failure_after_a_request_loses_no_step(subject: Any, drawn: tuple[Script, int]) -> None:
    script, at = drawn
    calls, count = lifecycle(script).calls, len(script.answers)
    step, epoch = calls[at].step, calls[at].epoch
    earlier = {call.step for call in calls[:at] if (call.event, call.epoch) == ("on_step_begin", epoch)} - {step}
    first = (epoch, 1 + script.accumulation * len(earlier))
    fetch = parts()["batch_at"]

    def batch_at(*place: int) -> Any:
        if place == first:
            raise RuntimeError("a worker was killed")
        return fetch(*place)

    where = f"asked to stop in step {step}, whose data fail,"
    try:
        failed = KeptRun(subject, script, asked_at=at, batch_at=batch_at)
    except RuntimeError as error:
        raise AssertionError(f"{where} the run ends with {error!r}") from error
    assert failed.kept, f"{where} the run saves nothing"
    position = failed.kept[-1].state.position
    assert position.step == step - 1, f"{where} the run saves step {position.step}"
    forward = next(n for n, call in enumerate(calls) if (call.event, call.step) == ("on_before_forward", step))
    begin = [Call(n, event, epoch, step - 1) for event in ("on_train_begin", "on_save") for n in range(count)]
    rest, events = [*begin, *calls[forward:]], forward // count
    if script.is_saved(step - 1):
        rest = rest_of(script, position, named=True)[1]
        events = next(n for n, call in enumerate(calls) if (call.event, call.step) == ("on_save", step - 1)) // count
    resumed = KeptRun(subject, script, resumed=failed.kept[-1])
    assert_same_calls(resumed.calls, rest)
    got, expected = [state for _, _, state in resumed.loaded], [{"events": events}] * count
    assert got == expected, f"{where} the callbacks get back {got}; expected {expected}"
