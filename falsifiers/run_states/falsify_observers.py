"""Attacks on the observers of a run that has ended. The subject is that of `kept`."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import Script, scripts
from falsifiers.callbacks.real_run import parts, recording_callbacks, run
from reference_trainer.callbacks.observers import Observer

FAULT = RuntimeError("raised on purpose")


def _run(subject: Any, script: Script, callbacks: Any, *, fails: bool) -> None:
    """Run with these callbacks; `fails` ends it in its first step."""

    def batch_at(epoch: int, k: int) -> Any:
        if fails:
            raise FAULT
        return parts()["batch_at"](epoch, k)

    try:
        run(subject, script, callbacks, parts() | {"batch_at": batch_at})
    except RuntimeError as error:
        if error is not FAULT:
            raise


class Watching(Observer):
    """An observer that counts the runs that end."""

    def __init__(self) -> None:
        self.ended = 0

    def on_train_end(self, context: Any) -> None:
        self.ended += 1


@given(script=scripts(st.none()), fails=st.booleans())
def falsify_a_run_closes_its_observers(subject: Any, script: Script, fails: bool) -> None:
    before, watching = set(threading.enumerate()), Watching()
    _run(subject, script, [*recording_callbacks(1, lambda *call: None), watching], fails=fails)
    left = set(threading.enumerate()) - before
    assert not left, f"the run has ended; its observer still has {left}"
    assert watching.ended == 1, f"the end of the run was delivered {watching.ended} times"


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
