"""The state and the checkpoints of the suite's own loop."""

import copy
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from pv.suites.training_loop.job import Job
from pv.suites.training_loop.plan import checkpoints_to_keep

Batch = dict[str, Tensor]
Sums = tuple[float, int]
"""A loss in nats summed over the scored tokens, and their number."""


@dataclass(slots=True)
class State:
    """The counters and logs of a checkpoint, besides the states of model, optimizer, schedule and random numbers."""

    step: int = 0
    # The number of scored tokens since the run began.
    tokens: int = 0
    # The sums of each micro-batch, by step, since the last log.
    since: list[list[Sums]] = field(default_factory=list)
    # The least evaluation loss and its step.
    best: tuple[float, int] | None = None
    logs: list[dict[str, float]] = field(default_factory=list)
    evaluations: list[tuple[int, float]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Training:
    """The parts of a run."""

    job: Job
    model: nn.Module
    optimizer: Optimizer
    scheduler: LambdaLR
    scaler: GradScaler
    average: nn.Module
    state: State
    events: list[str]


PARTS = ("model", "optimizer", "schedule", "scaler", "average", "random", "state")
"""The parts of a checkpoint."""


def checkpoints(directory: Path) -> dict[int, Path]:
    """Return the checkpoints on disk by step."""
    return {int(path.name.removeprefix("step-")): path for path in directory.glob("step-*")}


def refuse_later_checkpoints(directory: Path, step: int) -> None:
    """Raise FileExistsError if a directory has checkpoints of later steps than the one with which a run begins.

    They belong to another run: rotation would keep them instead of the new ones, and `newest` would return them.
    """
    if later := sorted(saved for saved in checkpoints(directory) if saved > step):
        raise FileExistsError(
            f"{directory} holds checkpoints of the steps {', '.join(map(str, later))} of another run: this one "
            f"begins after step {step}; choose another directory, or remove them"
        )


def save(training: Training) -> None:
    """Save the run: written under another name and renamed, a checkpoint is complete or not there."""
    path = training.job.directory / f"step-{training.state.step}"
    # POSIX renames a directory atomically: a reader sees the whole checkpoint or none.
    unfinished = partial(path)
    for folder in (unfinished, path):
        shutil.rmtree(folder, ignore_errors=True)
    unfinished.mkdir()
    write(snapshot(training), unfinished)
    unfinished.rename(path)


def partial(path: Path) -> Path:
    """Return the temporary path of a checkpoint while it is written."""
    return path.with_name("partial-" + path.name)


def write(saved: Mapping[str, object], directory: Path) -> None:
    """Write every part of a checkpoint to its own file."""
    for name, value in saved.items():
        with (directory / f"{name}.pt").open("wb") as file:
            torch.save(value, file)


def read(directory: Path) -> dict[str, Any]:
    """Read all parts of a checkpoint. Raise FileNotFoundError if one is missing."""
    return {name: torch.load(directory / f"{name}.pt", weights_only=True) for name in PARTS}


def snapshot(training: Training) -> dict[str, Any]:
    """Return everything that the rest of the run depends on."""
    return {
        "model": training.model.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "schedule": training.scheduler.last_epoch,
        "scaler": training.scaler.state_dict(),
        "average": training.average.state_dict(),
        # Without the random state, dropout after a resume draws other numbers.
        "random": torch.get_rng_state(),
        "state": asdict(training.state),
    }


def restore(training: Training, saved: Mapping[str, Any]) -> None:
    """Restore every part of a snapshot."""
    training.model.load_state_dict(saved["model"])
    training.optimizer.load_state_dict(saved["optimizer"])
    training.scheduler.last_epoch = saved["schedule"]
    training.scaler.load_state_dict(saved["scaler"])
    training.average.load_state_dict(saved["average"])
    torch.set_rng_state(saved["random"])
    training.state = State(**saved["state"])


def rotate(job: Job, best: tuple[float, int] | None) -> None:
    """Remove the checkpoints that do not stay."""
    # Only after the new checkpoint is complete: a kill in between leaves too many, never too few.
    saved = checkpoints(job.directory)
    for step in saved.keys() - checkpoints_to_keep(saved, job.keep, best[1] if job.best and best else None):
        shutil.rmtree(saved[step])


def model_in(directory: Path) -> Any:
    """Return the state of the model in a checkpoint."""
    return read(directory)["model"]


def best_model(training: Training) -> nn.Module | None:
    """Return a model with the weights of the best checkpoint."""
    state, model = training.state, copy.deepcopy(training.model)
    path = checkpoints(training.job.directory).get(state.best[1]) if state.best else None
    if path is not None:
        model.load_state_dict(model_in(path))
    return model if path is not None else None
