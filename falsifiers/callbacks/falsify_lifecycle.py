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
