"""Attacks on the operations per second that a run reports. The subject is `reference_trainer.pipeline.distill`."""

from __future__ import annotations

import itertools
import math
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.step_flops.falsify_counts import forward_flops
from falsifiers.support.small_runs import run, small
from reference_trainer.models.decoder import DecoderConfig


@given(accumulate=st.sampled_from([1, 3]), log_every=st.sampled_from([1, 3]), teacher_width=st.sampled_from([16, 32]))
def falsify_a_step_has_the_operations_of_its_micro_batches(
    subject: Any, accumulate: int, log_every: int, teacher_width: int
) -> None:
    """Operations over steps per second are `accumulate` times those of a batch of 4 sequences of 8 tokens."""
    given = {"accumulate": accumulate, "log_every": log_every, "teacher_width": teacher_width, "epochs": 3}
    with tempfile.TemporaryDirectory() as name:
        settings = small(Path(name), out=Path(name) / "out", **given)
        metrics = run(subject, settings, clock=itertools.count().__next__).train.metrics
    student, teacher = (DecoderConfig(vocab_size=256, layers=1, width=each, heads=1) for each in (16, teacher_width))
    expected = accumulate * (forward_flops(teacher, 4, 8) + 3 * forward_flops(student, 4, 8))
    seen = metrics["flops_per_s"] / metrics["steps_per_s"]
    assert math.isclose(seen, expected, rel_tol=1e-12), (
        f"a step of {accumulate} micro-batches, logged every {log_every}, has {seen:g} operations; expected {expected}"
    )
