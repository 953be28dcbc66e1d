"""Checkpoints of a distillation: what is saved besides tensors, where, and what a run that resumes must share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from reference_trainer.config.settings import Settings
from reference_trainer.errors import CheckpointError
from reference_trainer.storage.checkpoint_files import Checkpoint, find_checkpoint, read_checkpoint, saved_steps
from reference_trainer.storage.checkpoint_manifest import MANIFEST, Manifest
from reference_trainer.storage.checkpoints import save_checkpoint, sweep
from reference_trainer.storage.retention import check_follows, checkpoint_name, drifts
from reference_trainer.storage.snapshot import Snapshot, restore, snapshot
from reference_trainer.training.loop import Saved
from reference_trainer.training.schedule import Event, Schedule
from reference_trainer.training.state import TrainState, restored, saved

__all__ = ["CHECKPOINTS", "RUN_ID", "Checkpoints", "conditions", "metrics_length", "opened", "resumable"]

CHECKPOINTS, RUN_ID = "checkpoints", "student"
"""Names of the directory in the output, and of its checkpoints: `checkpoints/student-step100`."""

FREE = frozenset(
    "data out force trace callbacks teacher teacher_cache max_steps smoke log_every project_to_steps device save_every "
    "keep resume".split()
)
"""Settings that a run may change when it resumes. Text, teacher and device are compared by what they are."""


def conditions(
    settings: Settings, device: torch.device, schedule: Schedule, digests: Mapping[str, str]
) -> dict[str, Any]:
    """Return what a resumed run must have in common with the saved one, to end with the same bits."""
    return {
        **{name: value for name, value in settings if name not in FREE},
        **digests,
        "steps_per_epoch": schedule.steps_per_epoch,
        "planned_steps": schedule.planned_steps,
        "world_size": 1,
        "strategy": "one process",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def opened(directory: Path, resume: Path | None) -> Checkpoint | None:
    """Return the checkpoint that `resume` names: a path, or "latest" or "best" of those in `directory`; None for None.

    Leftovers of killed runs are removed. Raise `CheckpointError` if it is missing or damaged, and if later ones are in
    `directory`, or any at all for a run that starts over.
    """
    sweep(directory)
    steps = saved_steps(directory, RUN_ID)
    if resume is None:
        if steps:
            raise CheckpointError(
                f"{directory} has checkpoints up to step {steps[-1]}; go on with --resume latest, or move them away"
            )
        return None
    named = str(resume) in ("latest", "best")
    checkpoint = read_checkpoint(find_checkpoint(directory, RUN_ID, str(resume)) if named else resume)
    check_follows(steps, checkpoint.manifest.step + 1)
    return checkpoint


def metrics_length(checkpoint: Checkpoint | None, directory: Path) -> int:
    """Return the bytes of the metrics file that a run keeps: those of its checkpoint, if that is in `directory`."""
    if checkpoint is None or checkpoint.path.resolve().parent != directory.resolve():
        return 0
    length = checkpoint.manifest.state.get("metrics_length")
    if type(length) is not int or length < 0:
        raise CheckpointError(f"{checkpoint.path / MANIFEST}: invalid metrics_length {length!r}")
    return length


def resumable(manifest: Manifest, schedule: Schedule, present: Mapping[str, Any]) -> TrainState:
    """Return the state of a checkpoint. Raise `CheckpointError`, with both values, for every condition that changed."""
    changed = drifts(manifest.conditions, json.loads(json.dumps(present)))
    name = checkpoint_name(manifest.run_id, manifest.step)
    if changed:
        raise CheckpointError(f"{name} cannot be resumed: {'; '.join(changed)}; resume with what it was saved with")
    try:
        state = restored(json.dumps(manifest.state["train"]))
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{name}/{MANIFEST}: invalid state: {error}") from error
    at = state.position
    in_schedule = 1 <= at.epoch <= schedule.epochs and 1 <= at.epoch_step <= min(at.step, schedule.steps_per_epoch)
    if at.event is not Event.SAVE or at.step != manifest.step or state.steps != at.step or not in_schedule:
        raise CheckpointError(f"{name}/{MANIFEST}: the state is of {at}; expected that of step {manifest.step}")
    return state


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """The checkpoints of one run in `directory`, of which the last `keep` stay."""

    directory: Path
    keep: int
    modules: Mapping[str, nn.Module]
    optimizer: torch.optim.Optimizer | None
    conditions: Mapping[str, Any]

    def save(self, run: Saved, metrics_length: int) -> Path | None:
        """Save the run if a checkpoint is due, and return its path."""
        if not run.due:
            return None
        taken = snapshot(self.modules, self.optimizer)
        state = {
            "train": json.loads(saved(run.state)),
            "optimizer": taken.optimizer,
            "metrics_length": metrics_length,
        }
        manifest = Manifest(run_id=RUN_ID, step=run.state.position.step, conditions=dict(self.conditions), state=state)
        return save_checkpoint(self.directory, manifest, taken.tensors, keep=self.keep)

    def load(self, checkpoint: Checkpoint, schedule: Schedule) -> TrainState:
        """Restore modules and optimizer, and return the run to go on with. Nothing is changed by a refusal."""
        run = resumable(checkpoint.manifest, schedule, self.conditions)
        described = checkpoint.manifest.state.get("optimizer", {})
        restore(Snapshot(tensors=checkpoint.tensors, optimizer=described), self.modules, self.optimizer)
        return run
