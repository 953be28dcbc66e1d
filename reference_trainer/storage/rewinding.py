"""Setting later checkpoints aside, so that a run can go on from an earlier one. Nothing is deleted."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from reference_trainer.errors import CheckpointError, OutputError
from reference_trainer.storage.checkpoint_files import find_checkpoint, read_manifest, saved_steps
from reference_trainer.storage.checkpoints import DISK, Disk
from reference_trainer.storage.links import link_checkpoints
from reference_trainer.storage.retention import checkpoint_name, superseded

__all__ = ["rewind"]


def rewind(directory: Path, run_id: str, start: int | None, *, disk: Disk = DISK) -> Path | None:
    """Move the checkpoints later than `start`, or all for None, into a new directory `{run_id}-rewound-K`; return it.

    Return None if there are none. They keep their names, so each can still be resumed by its path. Checkpoints are
    moved one by one, the newest first: a killed rewind leaves every one whole, and is completed by the next.
    Raise `OutputError` if a checkpoint cannot be moved.
    """
    moved = superseded(saved_steps(directory, run_id), start)
    if not moved:
        return None
    aside = next(path for k in count(1) if not (path := directory / f"{run_id}-rewound-{k}").exists())
    try:
        aside.mkdir()
        for step in moved:
            name = checkpoint_name(run_id, step)
            disk.rename(directory / name, aside / name)
        disk.sync(aside)
        disk.sync(directory)
    except OSError as error:
        raise OutputError(f"cannot move checkpoints from {directory} to {aside}: {error.strerror}") from error
    latest = max(saved_steps(directory, run_id), default=None)
    link_checkpoints(directory, run_id, latest=latest, best=_best(directory, run_id))
    return aside


def _best(directory: Path, run_id: str) -> int | None:
    """Return the step of the best checkpoint that is left; None if there is none, or the latest cannot be read."""
    try:
        return read_manifest(find_checkpoint(directory, run_id, "best")).step
    except CheckpointError:
        return None
