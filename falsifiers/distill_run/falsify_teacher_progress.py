"""Attacks on the lines about the training of a teacher. The subject is `pipeline.distill`, or has its name."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.support.run_lines import ATTACHED, matcher
from falsifiers.support.small_runs import small


@given(steps=st.sampled_from([99, 100, 203]))
def falsify_teacher_progress_is_printed_every_hundred_steps(subject: Any, steps: int) -> None:
    """Each hundredth step and its loss have the teacher's title.

    A line then separates them from the student's.
    """
    stream = io.StringIO()
    with tempfile.TemporaryDirectory() as name:
        settings = small(Path(name), out=Path(name, "out"), teacher_steps=steps, max_steps=1)
        subject.distill(settings, lines=reference_trainer.Lines(stream))
    lines = stream.getvalue().splitlines()
    seen = [line.partition(", loss ")[0] for line in lines if ": step " in line or matcher(ATTACHED).match(line)]
    expected = [f"teacher: step {step}/{steps}" for step in range(100, steps + 1, 100)]
    expected.append(ATTACHED.format(every=10))
    assert seen == expected, (
        f"for {steps} steps of a teacher and the student's start the output is {seen}; expected {expected}"
    )
