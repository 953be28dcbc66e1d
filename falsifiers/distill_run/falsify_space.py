"""An attack on runs that do not fit on the disk. The subject is `reference_trainer.pipeline.distill`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from falsifiers.support.small_runs import found, refused, small

SHARES = {1.5: (True, False), 3.5: (True, False), 12.0: (True, True)}
"""Free bytes as multiples of the weights, and whether a run fits: one that saves a model, and one with checkpoints."""


def falsify_run_that_does_not_fit_is_refused_at_its_start(subject: Any) -> None:
    for share, (alone, saved) in SHARES.items():
        for others, fits in (({}, alone), ({"save_every": 1}, saved), ({"eval_every": 1}, saved)):
            with tempfile.TemporaryDirectory() as name:
                directory = Path(name)
                settings = small(directory, out=directory / "out").model_copy(update={"width": 64, **others})
                with subject.Distillation(settings) as run:
                    student = run.make_student()
                free = int(share * sum(each.numel() * each.element_size() for each in student.parameters()))
                before, disk = found(directory), SimpleNamespace(free=free)
                with mock.patch.object(shutil, "disk_usage", lambda path, disk=disk: disk):
                    said = refused(subject, settings)
                what = f"with {others or 'no checkpoints'} and {share} times the bytes of the weights"
                assert (said == "") is fits, f"{what}, the run ends with {said or 'a model'!r}"
                assert fits or f"{free:,} bytes" in said, f"{what}, the refusal is {said!r}"
                assert fits or found(directory) == before, f"{what}, the refused run leaves {sorted(found(directory))}"
