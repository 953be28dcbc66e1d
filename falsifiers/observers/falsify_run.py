"""An attack on observers of a real run. The subject has `train`, as `training.loop` does."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import ANSWERS, Call, Recorder, Script, assert_same_calls, lifecycle, scripts
from falsifiers.callbacks.real_run import parts, recording_callbacks, run
from falsifiers.observers.events import observer
from reference_trainer import Action, RunIdentity


@given(script=scripts(ANSWERS, fewest=1, most=2), observers=st.integers(1, 2), raises=st.none() | st.integers(0, 60))
def falsify_observers_see_the_whole_run(subject: Any, script: Script, observers: int, raises: int | None) -> None:
    """Observers answer STOP, which has no effect."""
    planned, recorder = lifecycle(script).calls, Recorder(script)
    seen: list[list[Call]] = [[] for _ in range(observers)]
    named = set[tuple[Any, ...]]()

    def act(callback: int, event: str, at: Any) -> Any:
        if raises is not None and len(recorder.calls) == raises:
            raise RuntimeError("raised on purpose")
        return recorder.act(callback, event, at)

    def note(number: int, hook: str, at: Any) -> Action:
        seen[number].append(Call(0, hook, at.epoch, at.step, at.micro_batch))
        named.add((at.run, at.attempt, at.hook == hook, at.rank, at.world_size))
        return Action.STOP

    watching = [observer(partial(note, number)) for number in range(observers)]
    before = set(threading.enumerate())
    given = parts() | {"identity": RunIdentity(run="mine", attempt=7)}
    try:
        run(subject, script, [*recording_callbacks(len(script.answers), act), *watching], given)
    except RuntimeError:
        assert raises is not None, "the run ended with an error of its own"
    left = set(threading.enumerate()) - before
    assert not left, f"the run has ended; its observers still have {left}"
    count, expected = len(script.answers), planned[:: len(script.answers)]
    if raises is not None and raises < len(planned):
        at = planned[raises]
        ends = [Call(0, "on_train_end", at.epoch, at.taken)] if at.event != "on_train_end" else []
        expected = expected[: raises // count + 1] + ends
    for calls in seen:
        assert_same_calls(calls, expected)
    assert named == {("mine", 7, True, 0, 1)}, f"events name run, attempt, hook, rank and world size {named}"
