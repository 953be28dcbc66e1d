"""Attacks on limits of steps: what a limit may be, and a run that `--max-steps` ends.

The subject is `training.schedule`, or that of `falsify_steps`.
"""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_smoke.cases import finished, place, planned
from falsifiers.distill_smoke.falsify_full_run import WRITTEN
from falsifiers.support import oracles
from reference_trainer.storage.checkpoint_files import saved_steps


def falsify_schedules_need_positive_integers(subject: Any) -> None:
    usual = {"epochs": 2, "steps_per_epoch": 3, "limit": 4}
    for name, value in itertools.product(usual, (0, -1, 2.0, True, "2", None)):
        if (name, value) != ("limit", None):
            oracles.assert_refused(f"{name} = {value!r}", lambda k={**usual, name: value}: subject.Schedule(**k), name)


@given(n=st.integers(1, 12), epochs=st.integers(1, 3))
def falsify_max_steps_ends_and_saves(subject: Any, device: str, n: int, epochs: int) -> None:
    with place() as where:
        ran = finished(subject, where, device=device, max_steps=n, epochs=epochs, save_every=5000)
        written = sorted(path.name for path in where.out.iterdir()) if where.out.exists() else []
        saved = saved_steps(where.out / "checkpoints", "student")
        output = ran.result.output
    expected = min(n, planned(epochs=epochs))
    steps = ran.result.train.steps_completed
    assert steps == len(ran.losses) == expected, f"{steps} steps ran with max_steps = {n}; expected {expected}"
    wanted = sorted([*WRITTEN, "checkpoints"])
    assert written == wanted, f"max_steps = {n} left {written}; expected {wanted}"
    assert saved == [expected], f"max_steps = {n} left checkpoints of the steps {saved}; expected {[expected]}"
    assert output == where.out, f"the result reports the output {output}; expected {where.out}"
    assert not any("smoke" in line.lower() for line in ran.lines), f"lines mention smoke mode: {ran.lines}"
