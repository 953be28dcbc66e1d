"""Save and resume a distillation: the state besides tensors, and the conditions that a resumed run must meet."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from reference_trainer.callbacks.base import Callback, Context
from reference_trainer.callbacks.loggers import TENSORBOARD
from reference_trainer.callbacks.metrics_file import METRICS_FILE
from reference_trainer.config.kinds import path_in_json, suggestion
from reference_trainer.config.settings import FIELDS, Settings
from reference_trainer.errors import CheckpointError, DriftError, similar_path
from reference_trainer.models.decoder import Decoder
from reference_trainer.models.placement import device_name
from reference_trainer.pipeline.evaluations import BestTracker
from reference_trainer.plan.schedule import Action, Event, Schedule
from reference_trainer.ranks.coordination import Ranks
from reference_trainer.storage.background import Background
from reference_trainer.storage.checkpoints import (
    MANIFEST,
    Checkpoint,
    Manifest,
    check_complete,
    find_checkpoint,
    read_checkpoint,
    read_manifest,
    rewind,
    save_checkpoint,
    save_shards,
    saved_steps,
    sweep,
)
from reference_trainer.storage.files import is_partial
from reference_trainer.storage.retention import check_follows, checkpoint_name, differences
from reference_trainer.storage.snapshot import Snapshot, restore, snapshot
from reference_trainer.training.loop import BETWEEN_UPDATES, Saved
from reference_trainer.training.state import TrainState, state_from_json, state_to_json

CHANGEABLE = frozenset(
    "data out force trace callbacks teacher teacher_url teacher_outputs teacher_device_map shard_teacher student "
    "teacher_cache data_cache data_cache_gib data_workers eval_data eval_rows max_steps smoke log_every device "
    "project_to_steps save_every keep resume init_from rank_timeout hang_after eval_every rewind threads chat_template "
    "mix log_to".split()
)
"""Settings that a run may change when it resumes.

Paths of data, template and teacher may change, because `conditions` contains the digests of their contents. The setting
`device` may change, because `conditions` contains the name of the device in use.
"""


def fixed_settings(settings: Settings) -> dict[str, object]:
    """Return the settings that a run may not change when it resumes."""
    return {name: value for name, value in settings.flat().items() if name not in CHANGEABLE}


def conditions(
    settings: Settings,
    device: torch.device,
    schedule: Schedule,
    digests: Mapping[str, str],
    world_size: int,
    strategy: str,
) -> dict[str, object]:
    """Return the values that must be equal in the saved and the resumed run, to make the results bitwise equal."""
    start = settings.student.init_from
    initial_weights = {} if start is None else {"init_from": path_in_json(start.resolve())}
    return {
        **fixed_settings(settings),
        **initial_weights,
        **digests,
        "steps_per_epoch": schedule.steps_per_epoch,
        "planned_steps": schedule.planned_steps,
        "world_size": world_size,
        "strategy": strategy,
        "device": device_name(device),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


CHECKPOINTS, RUN_ID = "checkpoints", "student"
"""Name of the directory of checkpoints in the output directory, and prefix of the names of its checkpoints.

Example: `checkpoints/student-step100`.
"""
NAMED = ("latest", "best")
"""Values of `--resume` that are not paths of checkpoints."""

Result = TypeVar("Result")


def files_to_keep(directory: Path, resume: Path | None, *, rewinding: bool) -> list[str]:
    """Return the names in an output directory that may exist when a run starts.

    These are the files of metrics and, if the run resumes or rewinds, the directory of checkpoints. A directory with
    nothing but partial checkpoints, left by a run that was killed in its first save, may exist for a new run too.
    """
    try:
        has_only_partial = all(is_partial(entry) for entry in (directory / CHECKPOINTS).iterdir())
    except OSError:
        has_only_partial = False
    metrics = [METRICS_FILE, TENSORBOARD]
    return [*metrics, CHECKPOINTS] if has_only_partial or rewinding or resume is not None else metrics


def has_later(directory: Path, resume: Path | None) -> bool:
    """Return whether `directory` has a checkpoint later than `resume`; for None, whether it has any checkpoint.

    Raise `CheckpointError` if the checkpoint to resume does not exist.
    """
    path = None if resume is None else named_checkpoint(directory, resume)
    try:
        steps = saved_steps(directory, RUN_ID)
        if path is None:
            return bool(steps)
        return bool(steps) and read_manifest(path).step < steps[-1]
    except CheckpointError:  # `open_checkpoint` raises it again
        return False


def named_checkpoint(directory: Path, resume: Path) -> Path:
    """Return the path of the checkpoint to resume: a path, or "latest" or "best" of the checkpoints in `directory`.

    Raise `CheckpointError` if the checkpoint does not exist; the message suggests a similar name.
    """
    if str(resume) in NAMED:
        return find_checkpoint(directory, RUN_ID, str(resume))
    if not os.path.lexists(resume):
        similar = suggestion(str(resume), NAMED)
        hint = f" ({similar})" if similar else similar_path(resume)
        raise CheckpointError(f"cannot read {resume}: {os.strerror(errno.ENOENT)}{hint}; expected a checkpoint")
    return resume


def open_checkpoint(directory: Path, resume: Path | None, *, rewinding: bool) -> Checkpoint | None:
    """Remove the leftovers of killed runs, then return the checkpoint to resume; None if `resume` is None.

    Args:
        directory: The directory of checkpoints.
        resume: A path, or "latest" or "best" of the checkpoints in `directory`; None for a new run.
        rewinding: Whether later checkpoints will be set aside.

    Raises:
        CheckpointError: The checkpoint is missing or damaged, or a directory has the name of a checkpoint and no
            manifest. Without `rewinding`, also if later checkpoints exist; for a new run, if any checkpoint exists.
    """
    sweep(directory)
    check_complete(directory, RUN_ID)
    steps = [] if rewinding else saved_steps(directory, RUN_ID)
    if resume is None:
        if steps:
            raise CheckpointError(
                f"{directory} has checkpoints up to step {steps[-1]}; go on with --resume latest, or start over with "
                "--rewind, which sets them aside"
            )
        return None
    path = named_checkpoint(directory, resume)
    try:
        checkpoint = read_with_hint(read_checkpoint, path)
    except CheckpointError as error:
        raise CheckpointError(f"{error}{_hint_at_previous(path)}") from error
    check_follows(steps, checkpoint.manifest.step + 1)
    return checkpoint


def read_with_hint(read: Callable[[Path], Result], path: Path) -> Result:
    """Return `read(path)`, and add the result of `hint_at_latest` to errors."""
    try:
        return read(path)
    except CheckpointError as error:
        raise CheckpointError(f"{error}{hint_at_latest(path)}") from error


def hint_at_latest(path: Path) -> str:
    """Return a hint at the latest checkpoint if the path is an output or checkpoint directory of a run, else ""."""
    for checkpoint in (path / CHECKPOINTS / f"{RUN_ID}-latest", path / f"{RUN_ID}-latest"):
        if os.path.isdir(checkpoint):  # noqa: PTH112  (Path.is_dir raises for a name that is too long)
            return f"; did you mean {checkpoint}?"
    return ""


def _hint_at_previous(path: Path) -> str:
    """Return a hint at the checkpoint before the damaged one at `path`; "" if no earlier one exists."""
    names = [checkpoint_name(RUN_ID, step) for step in saved_steps(path.parent, RUN_ID)]
    index = names.index(path.name) if path.name in names else 0
    if index == 0:
        return ""
    return f"; to continue from the previous checkpoint, use --rewind --resume {path.parent / names[index - 1]}"


def metrics_length(checkpoint: Checkpoint | None, directory: Path) -> int:
    """Return the number of bytes of the metrics file to keep: the number in a checkpoint of `directory`, else 0.

    Raise `CheckpointError` if the checkpoint has no valid number.
    """
    # A checkpoint in another directory belongs to another run, which has its own metrics file.
    if checkpoint is None or checkpoint.path.resolve().parent != directory.resolve():
        return 0
    length = checkpoint.manifest.state.get("metrics_length")
    if type(length) is not int or length < 0:
        raise CheckpointError(f"{checkpoint.path / MANIFEST}: invalid metrics_length {length!r}")
    return length


def check_conditions(manifest: Manifest, present: Mapping[str, object]) -> None:
    """Raise `DriftError`, with both values, if a condition in `present` changed; ignore all other conditions.

    A run calls this function before it loads models, when not all conditions are known. `state_to_resume` checks all
    conditions later.
    """
    _refuse_changes(manifest, {name: value for name, value in manifest.conditions.items() if name in present}, present)


def _refuse_changes(manifest: Manifest, saved: Mapping[str, object], present: Mapping[str, object]) -> None:
    """Raise `DriftError` if the saved and the present conditions differ."""
    # A checkpoint of an older version lacks settings that were added later; their defaults keep the old behaviour.
    defaults = {name: FIELDS[name].default for name in present if name in FIELDS and name not in CHANGEABLE}
    if changed := differences({**defaults, **saved}, json.loads(json.dumps(present))):
        raise DriftError(
            f"{checkpoint_name(manifest.run_id, manifest.step)} cannot be resumed: {'; '.join(changed)}; resume with "
            "the saved values, or begin a new run from its weights with --init-from"
        )


def state_to_resume(manifest: Manifest, schedule: Schedule, present: Mapping[str, object]) -> TrainState:
    """Return the state of a checkpoint.

    Raise `DriftError`, with both values of every condition that changed, or `CheckpointError` for an invalid state.
    """
    _refuse_changes(manifest, manifest.conditions, present)
    name = checkpoint_name(manifest.run_id, manifest.step)
    try:
        saved = manifest.state["train"]
        # Version 0.2 and early revisions of 0.3 saved no `asked`: callbacks could not request events.
        saved_position = {"asked": Action.CONTINUE, **saved["position"]}
        state = state_from_json(json.dumps({**saved, "position": saved_position}))
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{name}/{MANIFEST}: invalid state: {error}") from error
    # The position must be between two updates, and its numbers must agree with the manifest and the schedule. Only at
    # the beginning and the end of an epoch, the number of steps in the epoch can be 0.
    position = state.position
    is_between_updates = position.event in (Event.SAVE, *BETWEEN_UPDATES, Event.TRAIN_END)
    is_at_step = 1 <= position.step == manifest.step == state.steps
    first = 1 if position.event in (Event.SAVE, Event.STEP_END) else 0
    last = min(position.step, schedule.steps_per_epoch)
    is_in_epoch = 1 <= position.epoch <= schedule.epochs and first <= position.epoch_step <= last
    if not (is_between_updates and is_at_step and is_in_epoch):
        raise CheckpointError(f"{name}/{MANIFEST}: invalid {position}; expected one after step {manifest.step}")
    return state


class WritingCallback(Callback):
    """Callback that ends the run at the next step if the background thread failed to write a checkpoint."""

    def __init__(self, writer: Background) -> None:
        self._writer = writer

    def on_step_end(self, context: Context) -> None:
        self._writer.check()


@dataclass(slots=True, kw_only=True)
class Checkpoints:
    """The checkpoints of one run in `directory`. The last `keep` and the best are kept.

    `writer` writes them in the background: a step waits for the copy of the tensors, not for the disk. With `fsdp2`,
    the ranks write their shards at once, and a step waits for the disk.

    Attributes:
        directory: The directory of the checkpoints.
        keep: Number of latest checkpoints to keep; 0 keeps all.
        modules: The modules to save, by the prefix of their tensors.
        optimizer: The optimizer to save; None without one.
        conditions: The result of the function `conditions`.
        ranks: The ranks of the run.
        best: The best step.
        writer: The thread that writes the checkpoints.
    """

    directory: Path
    keep: int
    modules: Mapping[str, nn.Module]
    optimizer: torch.optim.Optimizer | None
    conditions: dict[str, Any]
    ranks: Ranks
    best: BestTracker
    writer: Background
    initial: dict[str, object] | None = None
    """The checkpoint with the initial weights of the run, as in `InitialWeights.identity`; also for a resumed run."""
    custom_settings: Mapping[str, str] = field(default_factory=dict)
    """The settings that name the class or model of a custom student; an export needs them."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """The settings that a resumed run takes from the checkpoint unless they are set explicitly."""
    started_step: int = 0
    """The step of the last save that was started."""

    def save(self, run: Saved, metrics_length: int) -> Path | None:
        """Start to save the run if a checkpoint is due, or if the step is the best so far.

        All ranks call this method with equal evaluations, so they choose the same best step. With `fsdp2` every rank
        writes its shard, and all ranks wait for each other; otherwise rank 0 writes in the background. An error of the
        previous save is raised here, or by `writer`.

        Returns:
            The path of the checkpoint, on every rank; None if the step is not saved, or has been saved before.
        """
        # 1. Decide whether to save, equally on all ranks. `note` must be called even if no checkpoint is due.
        step = run.state.position.step
        is_best = run.evaluated and self.best.note(step, run.state.validation)
        sharded = self.conditions["strategy"] == "fsdp2"
        if not (run.due or is_best) or step == self.started_step:
            return None
        self.started_step = step
        path = self.directory / checkpoint_name(RUN_ID, step)
        if self.ranks.rank > 0 and not sharded:
            return path
        # 2. Copy the tensors, so that the training can continue while the copies are written.
        copies = snapshot(self.modules, self.optimizer)
        student = self.modules.get("student")
        state = {
            "train": json.loads(state_to_json(run.state)),
            "optimizer": copies.optimizer,
            "metrics_length": metrics_length,
            "student": student.config if isinstance(student, Decoder) else None,
            "own": dict(self.custom_settings),
            "settings": dict(self.settings),
            "initial": self.initial,
        }
        manifest = Manifest(
            run_id=RUN_ID,
            step=step,
            world_size=self.conditions["world_size"],
            strategy=self.conditions["strategy"],
            best=self.best.best,
            conditions=self.conditions,
            state=state,
        )
        # 3. Write.
        if sharded:
            save_shards(self.ranks, self.directory, manifest, copies.tensors, keep=self.keep)
            return path
        work = partial(save_checkpoint, self.directory, manifest, copies.tensors, keep=self.keep)
        self.writer.start(work, f"writer of {path.name}")
        return path

    def load(self, checkpoint: Checkpoint, schedule: Schedule) -> TrainState:
        """Restore modules, optimizer and best step; return the state to resume from. An error leaves all unchanged."""
        # `state_to_resume` and `restore` check everything before the first change.
        state = state_to_resume(checkpoint.manifest, schedule, self.conditions)
        described = checkpoint.manifest.state.get("optimizer", {})
        restore(Snapshot(tensors=checkpoint.tensors, optimizer=described), self.modules, self.optimizer)
        self.best.best = checkpoint.manifest.best
        self.initial = checkpoint.manifest.state.get("initial")
        return state

    def rewind(self, start: int | None) -> Path | None:
        """Move checkpoints later than step `start` to another directory; for None, move all checkpoints.

        Return the directory; None if no checkpoint was moved.
        """
        return rewind(self.directory, RUN_ID, start)
