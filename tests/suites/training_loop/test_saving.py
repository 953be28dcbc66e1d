from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pv.suites.training_loop import loop, saving
from pv.suites.training_loop.job import Job
from pv.suites.training_loop.oracle import START

Jobs = Callable[..., Job]


def test_a_checkpoint_has_every_part_and_gives_them_back(job: Jobs, tmp_path: Path) -> None:
    training = loop.begin(job(directory=tmp_path))
    training.state.step = 3
    saving.save(training)
    (path,) = saving.checkpoints(training.job.directory).values()
    assert path.name == "step-3" and saving.read(path).keys() == set(saving.PARTS)
    again = loop.begin(replace(training.job, resume=path))
    assert again.state == training.state
    assert all(torch.equal(each, START[name]) for name, each in saving.model_in(path).items())


def test_a_checkpoint_without_a_part_is_refused(job: Jobs, tmp_path: Path) -> None:
    training = loop.begin(job(directory=tmp_path))
    saving.save(training)
    (path,) = saving.checkpoints(training.job.directory).values()
    (path / "scaler.pt").unlink()
    with pytest.raises(FileNotFoundError, match=r"scaler\.pt"):
        saving.read(path)


def test_the_newest_and_the_best_stay(job: Jobs, tmp_path: Path) -> None:
    training = loop.begin(job(directory=tmp_path, keep=1, best=True))
    for step in (1, 2, 3):
        training.state.step = step
        saving.save(training)
    saving.rotate(training.job, (0.5, 1))
    assert saving.checkpoints(training.job.directory).keys() == {1, 3}
