import fcntl
from dataclasses import dataclass
from pathlib import Path

import pytest

from pv.suites.training_loop import bench as benches
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import equal, job, saved_job
from pv.suites.training_loop.job import Job, Report
from pv.suites.training_loop.loop import Loop


@dataclass
class Counting(Loop):
    runs: int = 0

    def run(self, job: Job) -> Report:
        self.runs += 1
        return super().run(job)


def test_run_is_shared_by_claims_and_benches(tmp_path: Path) -> None:
    trainer = Counting()
    runs = [Bench(trainer, tmp_path).run(job(equal(3))) for _ in range(3)]
    assert trainer.runs == 1 and len({run.order[0] for run in runs}) == 1


def test_run_that_another_process_is_making_for_long_is_made_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benches, "PATIENCE_S", 0.2)
    trainer = Counting()
    Bench(trainer, tmp_path).run(job(equal(3)))
    (lock,) = tmp_path.glob("*.lock")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        Bench(trainer, tmp_path).run(job(equal(3)))
    assert trainer.runs == 2


def test_later_checkpoints_are_not_there_on_resume(tmp_path: Path) -> None:
    bench = Bench(Loop(), tmp_path)
    again = bench.resume(bench.run(saved_job()), 3)
    assert again.job.resume is not None
    assert sorted(path.name for path in again.job.resume.parent.glob("step-*"))[0] == "step-1"
    assert len(again.steps) == 5
