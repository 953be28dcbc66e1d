"""What is recorded of a run; a setting that an adapter ignores leaves a claim undecided."""

import fcntl
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import SkipTest

import pytest
import torch

from pv.suites.training_loop import bench as benches
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import equal, job, saved_job
from pv.suites.training_loop.job import Job, Report
from pv.suites.training_loop.loop import Loop
from pv.suites.training_loop.probe import Probe
from pv.suites.training_loop.recording import Recorder, record
from pv.suites.training_loop.run import observe
from pv.suites.training_loop.unread import refuse_unread, watched


def test_steps_that_are_not_of_torch_leave_the_claims_undecided(tmp_path: Path) -> None:
    class Other(Loop):
        def run(self, job: Job) -> Report:
            model = job.model()
            with torch.no_grad():
                model.head.weight += 0.1
            return Report(model=model)

    with pytest.raises(SkipTest, match=r"no torch\.optim\.Optimizer takes a step"):
        observe(Other(), Job(directory=tmp_path, train=equal(4)))


def recorded() -> tuple[Recorder, Probe]:
    found = record()
    return found, found.watch(Probe())


def test_optimizer_of_another_model_is_not_recorded() -> None:
    found, _ = recorded()
    found.note_step(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0))
    assert found.steps == []


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


JOB = Job(directory=Path("out"), train=equal(4), clip=1.0, groups=True)


def test_setting_that_is_not_read_is_named() -> None:
    seen = watched(JOB)
    assert seen.clip == 1.0
    with pytest.raises(
        SkipTest, match=r"^the adapter does not read job.groups: use it, or list the feature in `lacks`$"
    ):
        refuse_unread(JOB)


def test_resumed_run_need_not_read_all() -> None:
    job = replace(JOB, resume=Path("step-4"))
    watched(job)
    refuse_unread(job)


def test_cadence_of_logs_matters_only_where_something_is_logged() -> None:
    job = Job(directory=Path("out"), train=equal(4), log_every=3)
    watched(job)
    refuse_unread(job, {"loss", "rate", "norm", "history"})
    with pytest.raises(SkipTest, match=r"job\.log_every"):
        refuse_unread(job, {"rate", "norm"})


def test_loop_with_a_schedule_of_its_own_need_not_read_one() -> None:
    job = Job(directory=Path("out"), train=equal(4), schedule="linear", warmup=2, optimizer="adamw")
    watched(job)
    refuse_unread(job, {"schedule": "the rate is constant", "optimizer": "AdamW alone"})
    with pytest.raises(SkipTest, match=r"job\.schedule, job\.warmup: use"):
        refuse_unread(job, {"optimizer": "AdamW alone"})
