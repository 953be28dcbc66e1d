"""Attacks on the number of threads of a run. The subject is `reference_trainer.pipeline.distill`, or has its name."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.small_runs import run, small
from reference_trainer.callbacks.base import Callback


@given(asked=st.sampled_from([None, 1, 3]), variable=st.booleans())
def falsify_run_uses_one_thread_unless_asked(subject: Any, asked: int | None, variable: bool) -> None:
    before = 2  # what torch has read from the variable, or has chosen by itself without one
    used, environment = set[int](), {"OMP_NUM_THREADS": str(before)} if variable else {}

    class Noting(Callback):
        def on_step_end(self, context: Any) -> None:
            used.add(torch.get_num_threads())

    kept = torch.get_num_threads()
    torch.set_num_threads(before)
    try:
        with tempfile.TemporaryDirectory() as name:
            settings = small(Path(name), out=Path(name, "out"), threads=asked)
            run(subject, settings, callbacks=[Noting()], environment=environment)
            recorded = json.loads((settings.out / "manifest.json").read_text())["threads"]
        after = torch.get_num_threads()
    finally:
        torch.set_num_threads(kept)
    expected = asked or (before if variable else 1)
    case = f"threads {asked}, {environment}, {before} before"
    assert (used, recorded) == ({expected}, expected), f"{case}: {used} used, {recorded} recorded; expected {expected}"
    assert after == before, f"{case}: the process is left with {after}"
