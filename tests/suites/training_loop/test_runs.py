"""What is recorded of a run; a setting that an adapter ignores leaves a claim undecided."""

import fcntl
import math
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest
import torch

from pv.suites.training_loop import bench as benches
from pv.suites.training_loop import run as run_module
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.cases import SAVED, equal
from pv.suites.training_loop.diagnosis import differing_steps
from pv.suites.training_loop.job import Job, Report
from pv.suites.training_loop.loop import Loop
from pv.suites.training_loop.oracle import START, sums, token_mean
from pv.suites.training_loop.probe import Probe, start_recording
from pv.suites.training_loop.run import Unfinished, observe, refuse_unread, track_reads
from tests.suites.training_loop.planting import attack, loop_of


def test_steps_that_are_not_of_torch_leave_the_claims_undecided(tmp_path: Path) -> None:
    class Other(Loop):
        def run(self, job: Job) -> Report:
            model = job.model()
            with torch.no_grad():
                model.head.weight += 0.1
            return Report(model=model)

    with pytest.raises(SkipTest, match=r"no torch\.optim\.Optimizer takes a step"):
        observe(Other(), Job(directory=tmp_path, train=equal(4)))


def test_optimizer_of_another_model_is_not_recorded() -> None:
    recording = start_recording()
    recording.watch(Probe())
    recording.note_step(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0))
    assert recording.steps == []


@dataclass
class Counting(Loop):
    runs: int = 0

    def run(self, job: Job) -> Report:
        self.runs += 1
        return super().run(job)


def test_run_is_shared_by_claims_and_benches(tmp_path: Path) -> None:
    trainer = Counting()
    runs = [Bench(trainer, tmp_path).run(Job(train=equal(3))) for _ in range(3)]
    assert trainer.runs == 1 and len({run.order[0] for run in runs}) == 1


def test_run_that_another_process_makes_for_long_is_made_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benches, "WAIT_S", 0.2)
    trainer = Counting()
    Bench(trainer, tmp_path).run(Job(train=equal(3)))
    (lock,) = tmp_path.glob("*.lock")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        Bench(trainer, tmp_path).run(Job(train=equal(3)))
    assert trainer.runs == 2


class Folders(Loop):
    """Has each checkpoint under one name, in a folder of its own."""

    def run(self, job: Job) -> Report:
        report = super().run(job)
        for step, path in report.checkpoints.items():
            saved = job.directory / f"kept-{step}" / "last.pt"
            saved.parent.mkdir(exist_ok=True)
            shutil.move(path, saved)
            report.checkpoints[step] = saved
        return report


@pytest.mark.parametrize(("kind", "kept"), [(Loop, "step-{}"), (Folders, "kept-{}/last.pt")])
def test_checkpoints_up_to_that_of_a_resume_are_there(kind: type[Loop], kept: str, tmp_path: Path) -> None:
    bench = Bench(kind(), tmp_path)
    again = bench.resume(bench.run(SAVED), 3)
    assert all((again.job.directory / kept.format(step)).exists() for step in (1, 2, 3))
    assert len(again.steps) == 5


@pytest.mark.parametrize(("report", "fault"), [("step-9", "no such file exists in"), ("step-4", "of a later step")])
def test_checkpoint_that_cannot_be_resumed_leaves_it_undecided(report: str, fault: str, tmp_path: Path) -> None:
    bench = Bench(Loop(), tmp_path)
    straight = bench.run(SAVED)
    paths = {**straight.checkpoints, 3: straight.job.directory / report}
    with pytest.raises(SkipTest, match=f"as the checkpoint of step 3, and {fault}"):
        bench.resume(replace(straight, checkpoints=paths), 3)


GROUPED: dict[str, Any] = {"clip": 1.0, "groups": True}
EVALUATED: dict[str, Any] = {"evaluated": equal(3), "eval_batch": 3}
DUE = EVALUATED | {"eval_every": 1}
LOGGED: dict[str, Any] = {"log_every": 3}
SCHEDULED: dict[str, Any] = {"schedule": "linear", "warmup": 2, "optimizer": "adamw"}


@pytest.mark.parametrize(
    ("settings", "read", "lacks", "says"),
    [
        (GROUPED, "clip", (), r"^the adapter does not read job.groups: .* name `groups` as missing in `features`$"),
        (GROUPED | {"resume": Path("step-4")}, "clip", (), None),  # it need not read all
        (
            {"batch": 3, "decay": 0.1},
            "",
            (),
            r"job.batch: .*; job.decay: use it, or leave `decay` out of `features`$",
        ),
        ({"seed": 3}, "", (), r"job.seed: use it, as by `torch\.manual_seed\(job\.seed\)` for a loop without"),
        (EVALUATED, "", (), None),
        (DUE, "eval_every", (), r"job\.eval_batch: use it.*; job\.evaluated: use it, or name `evaluate`"),
        (LOGGED, "", ("loss", "rate", "norm", "history"), None),
        (LOGGED, "", ("rate", "norm"), r"job\.log_every: use it, or name `log_every` as missing in `features`"),
        (LOGGED, "", ("log_every",), None),
        (SCHEDULED, "", ("schedule", "optimizer"), None),
        (SCHEDULED, "", ("optimizer",), r"job\.schedule: use it \(.*`expected_rate`\), .* `features`; job\.warmup"),
    ],
)
def test_setting_that_is_not_read_is_named(settings: Any, read: str, lacks: tuple[str, ...], says: str | None) -> None:
    job = Job(directory=Path("out"), train=equal(4), **settings)
    assert getattr(track_reads(job), read, None) == settings.get(read)
    try:
        refuse_unread(job, lacks)
    except SkipTest as error:
        assert says and re.search(says, str(error)), error
    else:
        assert says is None


@pytest.mark.parametrize("lacks", [{}, {"log_every": "it logs every step"}])
def test_loop_that_logs_every_step_is_not_accused_of_its_tokens(lacks: dict[str, str]) -> None:
    class Often(Loop):
        def run(self, job: Job) -> Report:
            _ = "log_every" in lacks or job.log_every
            return super().run(replace(job, log_every=1))

    Often.features = lacks
    attack("TL-LOG-006", Bench(Often()))


class Endless(Loop):
    def run(self, job: Job) -> Report:
        while True:
            super().run(job)


def test_endless_run_says_what_a_loop_of_steps_declares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "FIRST_S", 0.3)
    subject = Bench(Endless(), tmp_path)
    with pytest.raises(Unfinished, match=r"s of CPU time; if the loop counts only steps, name `epochs`"):
        subject.run(Job(train=equal(2)))
    with pytest.raises(Unfinished, match=r"s of CPU time(, the last .*)?$"):
        subject.run(Job(train=equal(2), max_steps=1))


def late(job: Job, report: Report) -> None:
    """Report after each step at which an evaluation is due the loss after the next one."""
    losses, every = dict(report.evaluations), max(job.eval_every, 1)
    report.evaluations = [(k, losses[k + 1]) for k in losses if k % every == 0 and k + 1 in losses]


def from_zero(job: Job, report: Report) -> None:
    report.evaluations = [(step - 1, loss) for step, loss in report.evaluations]


def before_training(job: Job, report: Report) -> None:
    if report.evaluations:
        report.evaluations.insert(0, (0, token_mean([sums(START, job.evaluated)])))


def once(job: Job, report: Report) -> None:
    report.evaluations = report.evaluations[-1:]


def measured(job: Job, report: Report) -> None:
    """Show the model a training example in eval mode, too."""
    report.model.eval()(torch.tensor([job.train[0].tokens]))


SAME_BATCHES = loop_of(lambda job: replace(job, eval_batch=job.batch), features={"eval_batch": False})
MOST = loop_of(lambda job: replace(job, train=job.train[:5], evaluated=(*job.evaluated, *job.train)))
"""Trains on five of six rows, and evaluates all of them, too."""
LATE = loop_of(lambda job: replace(job, eval_every=1), late)
AT_ONE = loop_of(lambda job: replace(job, clip=1.0), features={"clip": False})
UNSCALED = loop_of(lambda job: replace(job, scaler=job.scaler and False))
STILL = loop_of(lambda job: replace(job, noise=False) if job.noise else job)


@pytest.mark.parametrize(
    ("kind", "claim"),
    [
        (SAME_BATCHES, "TL-EVAL-001"),
        (SAME_BATCHES, "TL-EVAL-002"),
        (loop_of(after=from_zero), "TL-EVAL-001"),
        (loop_of(after=before_training), "TL-EVAL-001"),
        (loop_of(after=before_training), "TL-EVAL-007"),
        (loop_of(after=once), "TL-EVAL-001"),
        (MOST, "TL-EVAL-005"),
        (loop_of(after=measured), "TL-EVAL-005"),
    ],
)
def test_unusual_evaluations_are_no_fault(kind: type[Loop], claim: str) -> None:
    attack(claim, Bench(kind()))


@pytest.mark.parametrize(
    ("kind", "claim", "error", "says"),
    [
        (loop_of(after=from_zero), "TL-EVAL-007", AssertionError, "one step early: steps are counted from 0"),
        (LATE, "TL-EVAL-001", AssertionError, "the reported loss is [^,]*, the token mean is"),
        (AT_ONE, "TL-GRAD-001", SkipTest, r"the norm 1, as in a loop that clips at its own limit: pass `job"),
        (UNSCALED, "TL-SCALER-003", SkipTest, r"`features` has `scaler`, and no gradient is scaled"),
        (STILL, "TL-RESUME-007", SkipTest, r"with `job\.noise` the data draw no random numbers"),
    ],
)
def test_claim_that_does_not_hold_says_why(kind: type[Loop], claim: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        attack(claim, Bench(kind()))


def test_number_that_is_nan_in_both_runs_is_the_same() -> None:
    assert differing_steps({1: math.nan, 2: 1.0}, {1: math.nan, 2: math.nan}, 1e-6) == [2]
