"""An attack on the observers of a run that saves. The subject is that of `kept`."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import Script, scripts
from falsifiers.callbacks.real_run import parts, run
from reference_trainer.callbacks.observers import Observer


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
