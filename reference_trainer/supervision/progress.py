"""Find the progress of a run: its newest undamaged checkpoint, or its model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from reference_trainer.config.settings import Settings
from reference_trainer.errors import CheckpointError, DriftError, ModelFileError, OutputError
from reference_trainer.pipeline.checkpointing import CHECKPOINTS, RUN_ID, fixed_settings
from reference_trainer.storage.checkpoints import check_files, named_steps, read_manifest
from reference_trainer.storage.export import MANIFEST, verify_manifest
from reference_trainer.storage.retention import checkpoint_name, differences


def newest_undamaged_step(out: Path, report: Callable[[str], object]) -> int:
    """Return the step of the newest undamaged checkpoint; 0 if there is no checkpoint.

    Damaged checkpoints that are newer are renamed to `NAME.damaged`, so that the run does not resume from them. Raise
    `CheckpointError` if all checkpoints are damaged, because the run would start over, and `OutputError` if a damaged
    checkpoint cannot be renamed.
    """
    directory = out / CHECKPOINTS
    while steps := named_steps(directory, RUN_ID):
        path = directory / checkpoint_name(RUN_ID, steps[-1])
        try:
            check_files(path, read_manifest(path))
            return steps[-1]
        except CheckpointError as error:
            if len(steps) == 1:
                raise CheckpointError(
                    f"no undamaged checkpoint is left: {error}; move {directory} away to start over"
                ) from error
            report(f"renamed a damaged checkpoint to {_set_aside(path).name}: {error}")
    return 0


def _set_aside(path: Path) -> Path:
    """Rename a damaged checkpoint to an unused name, and return the new path."""
    new_path, number = path.with_name(f"{path.name}.damaged"), 1
    while new_path.exists():
        number += 1
        new_path = path.with_name(f"{path.name}.damaged{number}")
    try:
        return path.rename(new_path)
    except OSError as error:
        raise OutputError(f"cannot rename {path}: {error.strerror}") from error


def model_step(out: Path) -> int:
    """Return the number of steps after which the model in `out` was written; 0 without an undamaged model.

    A model without digests counts as undamaged.
    """
    try:
        manifest = json.loads((out / MANIFEST).read_bytes())
        if "sha256" in manifest:  # custom parts may write no digests
            verify_manifest(out)
        return int(manifest["result"]["steps_completed"])
    except (ModelFileError, OSError, ValueError, KeyError, TypeError):
        return 0


def is_done(out: Path, step: int | None) -> bool:
    """Return whether `out` has a model that was trained for at least `step` steps.

    If `step` is None, return whether the run ended by itself, after all planned steps or because of a callback: the run
    had no `max_steps`, or its model has fewer steps than `max_steps`.
    """
    taken = model_step(out)
    if step is not None:
        return taken >= step
    if not taken:
        return False
    limit = json.loads((out / MANIFEST).read_bytes()).get("settings", {}).get("max_steps")
    return limit is None or taken < limit


def check_model(out: Path, settings: Settings) -> None:
    """Raise `DriftError` if an explicit setting differs from its value in the run that trained the model in `out`."""
    saved = json.loads((out / MANIFEST).read_bytes()).get("settings", {})
    chosen = saved.keys() & settings.flat(chosen=True).keys()
    present = {name: value for name, value in fixed_settings(settings).items() if name in chosen}
    if changed := differences({name: saved[name] for name in present}, present):
        raise DriftError(f"{out} has the model of another run: {'; '.join(changed)}; choose another --out")
