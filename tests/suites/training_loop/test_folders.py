"""Claims about folders with an earlier run hold for every way to keep its checkpoints apart."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import SkipTest

import pytest

from pv.suites.training_loop import loop
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.cases import SAVED
from pv.suites.training_loop.job import Job, Report
from pv.suites.training_loop.loop import Loop, checkpoints
from tests.suites.training_loop.planting import attack

FOLDERS = ("TL-KEEP-004", "TL-RESUME-014")


class Clearing(Loop):
    """Removes the checkpoints of an earlier run when a new one begins."""

    def run(self, job: Job) -> Report:
        for path in () if job.resume else checkpoints(job.directory).values():
            shutil.rmtree(path)
        return super().run(job)


class Apart(Loop):
    """Has a folder for each run, and takes the newest checkpoint of the newest one."""

    def run(self, job: Job) -> Report:
        runs = sorted(job.directory.glob("run-*"))
        place = job.resume.parent if job.resume else job.directory / f"run-{len(runs)}"
        place.mkdir(exist_ok=True)
        return super().run(replace(job, directory=place))

    def newest(self, directory: Path) -> Path | None:
        return super().newest(max(directory.glob("run-*")))


class Mixing(Apart):
    """Takes the checkpoint with the largest step of all runs."""

    def newest(self, directory: Path) -> Path | None:
        return max(directory.glob("run-*/step-*"), key=lambda path: int(path.name.removeprefix("step-")))


@pytest.mark.parametrize("claim", FOLDERS)
@pytest.mark.parametrize("kind", [Loop, Clearing, Apart])
def test_loop_that_keeps_runs_apart_holds(kind: type[Loop], claim: str) -> None:
    attack(claim, Bench(kind()))


def test_newest_checkpoint_of_all_runs_is_refuted() -> None:
    with pytest.raises(AssertionError, match="it is a checkpoint of the earlier run, whose step is larger"):
        attack("TL-RESUME-014", Bench(Mixing()))


def test_a_run_goes_on_from_its_last_checkpoint_alone(tmp_path: Path) -> None:
    bench = Bench(Loop(), tmp_path)
    straight = bench.run(SAVED)
    with pytest.raises(FileExistsError, match=r"checkpoints of the steps 4, 5, 6, 7, 8 of another run.*after step 3;"):
        bench.resume_run(straight, straight.job.directory, straight.checkpoints[3])


def another_order(job: Job, done: int) -> Any:
    """Train the epoch after the one that is due where a finished run of two epochs is prolonged."""
    epoch = len(unpatched.epoch_windows(job, 0))
    yield from (
        unpatched.remaining_epochs(job, done)
        if done < 2 * epoch
        else unpatched.remaining_epochs(replace(job, epochs=4), done + epoch)
    )


def test_order_of_another_epoch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        loop,
        "remaining_epochs",
        lambda job, done: another_order(job, done) if job.resume else unpatched.remaining_epochs(job, done),
    )
    with pytest.raises(AssertionError, match=r"examples \[.*it is an order that no epoch"):
        attack("TL-RESUME-015", Bench(Loop()))


unpatched = SimpleNamespace(**vars(loop))


class Unprolonged(Loop):
    def run(self, job: Job) -> Report:
        if job.resume and job.epochs == 3:
            raise ValueError("a finished run is not prolonged")
        return super().run(job)


class Planned(Loop):
    """Draws other orders for another number of epochs."""

    def run(self, job: Job) -> Report:
        return super().run(replace(job, seed=job.seed + 100 * job.epochs))


def test_run_that_is_not_prolonged_is_no_fault_and_orders_that_depend_on_the_epochs_are_not_compared() -> None:
    attack("TL-RESUME-015", Bench(Unprolonged()))
    with pytest.raises(SkipTest, match="depend on how many epochs a run has"):
        attack("TL-RESUME-015", Bench(Planned()))
