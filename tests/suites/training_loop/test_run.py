from dataclasses import replace
from pathlib import Path
from unittest import SkipTest

import pytest
import torch

from pv.suites.training_loop.claims.cases import equal, evaluated_job
from pv.suites.training_loop.job import Job, Report
from pv.suites.training_loop.loop import Loop
from pv.suites.training_loop.run import observe


def test_random_state_is_another_one_before_each_run(tmp_path: Path) -> None:
    drawn = []

    class Draws(Loop):
        def run(self, job: Job) -> Report:
            drawn.append(float(torch.rand(())))
            return super().run(job)

    for _ in range(2):
        observe(Draws(), replace(evaluated_job(), directory=tmp_path))
    assert drawn[0] != drawn[1]


def test_steps_that_are_not_of_torch_leave_the_claims_undecided(tmp_path: Path) -> None:
    class Other(Loop):
        def run(self, job: Job) -> Report:
            model = job.model()
            with torch.no_grad():
                model.head.weight += 0.1
            return Report(model=model)

    with pytest.raises(SkipTest, match=r"no torch\.optim\.Optimizer takes a step"):
        observe(Other(), Job(directory=tmp_path, train=equal(4)))
