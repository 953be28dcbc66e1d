"""Attacks on the lifecycle of a run: which callback is told of what, when, and how a run ends.

The subject is that of `falsifiers.lifecycle`, with `START`, `following` and `ask` for the plan in pure integers.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.lifecycle import (
    ANSWERS,
    Recorder,
    Script,
    answering_once,
    assert_same_calls,
    callbacks,
    lifecycle,
    parts,
    run,
    scripts,
    scripts_with_one,
)


def assert_lifecycle(subject: Any, script: Script, device: str = "cpu") -> None:
    """A real run tells what the words say, and its result says what happened. Who comes later isn't told."""
    recorder, expected, count = Recorder(script), lifecycle(script), len(script.answers)
    *told, late = callbacks(subject, count + 1, lambda callback, event, context: join_and_act(callback, event, context))

    def join_and_act(callback: int, event: str, context: Any) -> Any:
        assert callback < count, f"a callback that was appended to the list during the run was told {event}"
        told.append(late)
        return recorder.act(callback, event, context)

    result = run(subject, script, told, parts(subject, device))
    assert_same_calls(recorder.told, expected.told)
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
    """One STOP, at any event, from any callback: everybody hears that event, no step follows, an epoch is closed."""
    assert_lifecycle(subject, script)


@given(script=scripts(st.sampled_from([None, "SKIP"]), fewest=1))
def falsify_skip_ends_the_epoch(subject: Any, script: Script) -> None:
    """SKIP leaves out the rest of the epoch and nothing else; where no epoch is open it changes nothing."""
    assert_lifecycle(subject, script)


@given(
    script=scripts(st.none(), fewest=2),
    nth=st.integers(0, 20),
    said=st.permutations(["SKIP", "STOP", None, "CONTINUE"]),
)
def falsify_the_strongest_answer_counts(subject: Any, script: Script, nth: int, said: list[str | None]) -> None:
    """Different answers to one event: STOP before SKIP before CONTINUE, whoever gave it."""
    assert_lifecycle(subject, answering_once(script, nth, said))
