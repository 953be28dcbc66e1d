"""Attacks on the lifecycle of a run: which hooks are called, in which order, and how answers end a run.

The subject is that of `real_run`.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import (
    ANSWERS,
    Recorder,
    Script,
    answering_once,
    assert_same_calls,
    lifecycle,
    scripts,
    scripts_with_one,
)
from falsifiers.callbacks.real_run import parts, recording_callbacks, run


def assert_lifecycle(subject: Any, script: Script, device: str = "cpu") -> None:
    """Assert that a real run makes the expected calls, and none on a callback that is appended during the run."""
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


@given(script=scripts(ANSWERS))
def falsify_sequence_of_events(subject: Any, device: str, script: Script) -> None:
    """Any schedule, any answers: train_begin (epoch_begin step_end* epoch_end)* train_end, each with its numbers."""
    assert_lifecycle(subject, script, device)


@given(script=scripts_with_one("STOP"))
def falsify_stop_ends_the_run(subject: Any, script: Script) -> None:
    assert_lifecycle(subject, script)


@given(script=scripts(st.sampled_from([None, "SKIP"]), fewest=1))
def falsify_skip_ends_the_epoch(subject: Any, script: Script) -> None:
    assert_lifecycle(subject, script)


@given(
    script=scripts(st.none(), fewest=2),
    nth=st.integers(0, 20),
    answers=st.permutations(["SKIP", "STOP", None, "CONTINUE"]),
)
def falsify_strongest_answer_wins(subject: Any, script: Script, nth: int, answers: list[str | None]) -> None:
    assert_lifecycle(subject, answering_once(script, nth, answers))
