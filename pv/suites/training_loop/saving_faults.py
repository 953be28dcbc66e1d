"""Faults in the checkpoints of a training loop that no edit of one expression makes. `original` is the replaced one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pv.suites.training_loop import loop, plan, saving
from pv.suites.training_loop.job import Job, Report, probe_of
from pv.suites.training_loop.saving import State, Training

if TYPE_CHECKING:  # a swap in a module that the loop imports is made while the loop is loaded
    from pv.suites.training_loop.loop import Loop


def draws_in_save(original: Callable[[Training], None], training: Training) -> None:
    """Draw a random number."""
    torch.rand(())
    original(training)


def saves_late(original: Callable[[Training], None], training: Training) -> None:
    """Save no checkpoint where the first one is due."""
    if training.state.step > training.job.save_every:
        original(training)


def counts_an_epoch_at_the_end(original: Callable[[Training], dict[str, Any]], training: Training) -> dict[str, Any]:
    """Count one epoch too many at the end of the run."""
    saved, job = original(training), training.job
    if saved["state"]["step"] == plan.planned_steps(job):
        saved["state"]["step"] += len(plan.epoch_windows(job, 0))
    return saved


def half_a_checkpoint(original: Callable[[Loop, Job], Report], self: Loop, job: Job) -> Report:
    """Save under the final name, and load whatever parts exist."""
    written: dict[str, Any] = {"save": _save_in_place, "restore": _restore_what_is_there, "read": _read_what_is_there}
    # A checkpoint without its state begins at step 0, which later checkpoints beside it would refuse.
    written["refuse_later_checkpoints"] = lambda directory, step: None
    vars(loop).update(written)
    return original(self, job)


def _read_what_is_there(directory: Path) -> dict[str, Any]:
    return {path.stem: torch.load(path, weights_only=True) for path in directory.glob("*.pt")}


def _save_in_place(training: Training) -> None:
    path = training.job.directory / f"step-{training.state.step}"
    path.mkdir(exist_ok=True)
    saving.write(saving.snapshot(training), path)


def _restore_what_is_there(training: Training, saved: Mapping[str, Any]) -> None:
    if "model" in saved:
        training.model.load_state_dict(saved["model"])
    if "optimizer" in saved:
        training.optimizer.load_state_dict(saved["optimizer"])
    training.scheduler.last_epoch = saved.get("schedule", 0)
    training.state = State(**saved.get("state", {}))


def restores_one_rate(
    original: Callable[[Training, Mapping[str, Any]], None], training: Training, saved: Mapping[str, object]
) -> None:
    """Give every parameter group the rate of the first."""
    original(training, saved)
    for group in training.optimizer.param_groups:
        group["lr"] = training.optimizer.param_groups[0]["lr"]


def unties(
    original: Callable[[Training, Mapping[str, Any]], None], training: Training, saved: Mapping[str, object]
) -> None:
    """Untie the head: load its weights into a new parameter."""
    original(training, saved)
    for model in (training.model, training.average):
        head = probe_of(model).head
        head.weight = nn.Parameter(head.weight.detach().clone())
