"""A run that is asked to stop, and then fails: data-loader workers end with a signal to the process group."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import FixtureTeacher, ModuleStudent
from reference_trainer.errors import OutputError, StopRequestedError
from reference_trainer.training.callbacks import Callback
from reference_trainer.training.loop import Objective, Saved, new_optimizer, train
from reference_trainer.training.schedule import Schedule
from tests.reference_trainer.conftest import Trainer

PROGRAM = Path(__file__).with_name("data_loader_run.py")
V = 3


def started(trainer: Trainer, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
    """Start a run with a DataLoader in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), "distill", "--save-every", "1000", *arguments],
        cwd=trainer.folder,
        env={**trainer.environment, "PYTHONPATH": os.pathsep.join(sys.path), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_signal_to_the_process_group_loses_no_step(trainer: Trainer) -> None:
    """The workers are killed while step 3 waits for them; step 2 is saved, and the run ends like a straight one."""
    run = started(trainer, HANG="1")
    assert run.stdout is not None
    assert any(line == "step 3 fetches\n" for line in run.stdout)
    os.killpg(run.pid, signal.SIGTERM)
    said, complaints = run.communicate(timeout=500)
    assert run.returncode == 75, said + complaints
    assert "then failed with" in complaints and "--resume latest" in complaints
    assert (trainer.folder / "out/checkpoints/student-step2/manifest.json").is_file()
    for arguments in (("--resume", "latest"), ("--out", "straight")):
        again = started(trainer, *arguments)
        said, complaints = again.communicate(timeout=500)
        assert again.returncode == 0, said + complaints
    cut, straight = ((trainer.folder / out / "model.safetensors").read_bytes() for out in ("out", "straight"))
    assert cut == straight


class FailsIn(Callback):
    """Callback in one of whose hooks, in step 2, the run is asked to stop, and fails if `error` is not None."""

    def __init__(self, hook: str, error: Exception | None) -> None:
        self.asked, self.error = False, error
        setattr(self, hook, self._fail)

    def _fail(self, context: Any) -> None:
        if context.step == 2:
            self.asked = True
            if self.error is not None:
                raise self.error


def saved_by(hook: str, error: Exception | None, save: Callable[[Saved], None] = lambda run: None) -> list[int]:
    """Return the steps that a run saves, before it calls `save`, which is asked to stop in this hook and fails."""
    tokens, saved = torch.tensor([[0, 1, 2]]), list[int]()

    def kept(run: Saved) -> None:
        if run.due:
            saved.append(run.state.position.step)
            save(run)

    student = nn.Embedding(V, V)
    failing = FailsIn(hook, error)
    train(
        FixtureTeacher(torch.eye(V)),
        ModuleStudent(student, V),
        lambda epoch, k: Batch(tokens=tokens, labels=tokens),
        new_optimizer(student.parameters(), 0.1),
        schedule=Schedule(epochs=1, steps_per_epoch=3, log_every=1, eval_every=1, save_every=9),
        objective=Objective(temperature=1.0, ce_weight=0.5, kd_weight=0.5),
        learning_rate=lambda step: 0.1,
        callbacks=[failing],
        evaluate=lambda: {"hard_loss": 1.0},
        save=kept,
        stop_requested=lambda: failing.asked,
    )
    return saved


@pytest.mark.parametrize("hook", ["on_step_begin", "on_step_end"])
def test_failure_between_updates_after_a_request_is_a_request(hook: str) -> None:
    with pytest.raises(StopRequestedError, match=r"^stopped on request, then failed with ValueError: failed"):
        saved_by(hook, ValueError("failed"))


@pytest.mark.parametrize(
    ("hook", "error", "step"), [("on_step_begin", ValueError("failed"), 1), ("on_optimizer_step", None, 2)]
)
def test_checkpoint_that_cannot_be_written_is_no_saved_request(hook: str, error: Exception | None, step: int) -> None:
    calls = []

    def full(run: Saved) -> None:
        calls.append(run.state.position.step)
        raise OutputError("the disk is full")

    with pytest.raises(OutputError, match="the disk is full"):
        saved_by(hook, error, full)
    assert calls == [step]
