"""The command `checkpoints`: list and verify the checkpoints of runs, and export a checkpoint as a model."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import torch

from reference_trainer.config.kinds import path_in_json
from reference_trainer.errors import CheckpointError, SettingError
from reference_trainer.models.decoder import Decoder, DecoderConfig
from reference_trainer.pipeline.checkpointing import CHECKPOINTS, RUN_ID
from reference_trainer.pipeline.custom_class import export_student
from reference_trainer.storage.checkpoints import MANIFEST, CheckpointEntry, find_checkpoint, verify_checkpoints
from reference_trainer.storage.export import exported_bytes, save_decoder
from reference_trainer.storage.files import exclusive_directory
from reference_trainer.storage.retention import checkpoint_name
from reference_trainer.storage.whole_weights import SavedWeights, read_weights


def list_checkpoints(directory: Path) -> list[CheckpointEntry]:
    """Verify and return the checkpoints in `directory`, or in its subdirectory `checkpoints`.

    Raise `CheckpointError` if there are no checkpoints.
    """
    checkpoints = verify_checkpoints(_checkpoints_of(directory))
    if not checkpoints:
        raise CheckpointError(f"{directory} has no checkpoints; expected the --out of a run, or its {CHECKPOINTS}")
    return checkpoints


def _checkpoints_of(directory: Path) -> Path:
    """Return the directory of checkpoints: `directory`, or its subdirectory if it is the output of a run."""
    return directory / CHECKPOINTS if (directory / CHECKPOINTS).is_dir() else directory


def table(checkpoints: Sequence[CheckpointEntry]) -> list[str]:
    """Return a line for each checkpoint: name, time of the save, number of bytes, and the result of `_state`."""
    width = max(len(entry.path.name) for entry in checkpoints)
    return [
        f"{entry.path.name:{width}}  {_time(entry.saved_at)}  {entry.size:>15,} bytes  {_state(entry, checkpoints)}"
        for entry in checkpoints
    ]


def _time(saved_at: float | None) -> str:
    return "never completed     " if saved_at is None else f"{datetime.fromtimestamp(saved_at, UTC):%Y-%m-%d %H:%M:%SZ}"


def _state(entry: CheckpointEntry, checkpoints: Sequence[CheckpointEntry]) -> str:
    """Return "damaged" with the fault, or "undamaged", marked as "latest" or "best" if it is so within its run."""
    if entry.fault is not None:
        return f"damaged: {entry.fault}"
    # The newest undamaged checkpoint contains the best step of the run.
    run = [other for other in checkpoints if other.run_id == entry.run_id]
    best = next((other.best for other in reversed(run) if other.fault is None), None)
    latest = ", latest" if entry is run[-1] else ""
    score = f", best (score {best.score:.6g})" if best is not None and best.step == entry.step else ""
    return f"undamaged{latest}{score}"


def export_checkpoint(directory: Path, step: int | Literal["latest", "best"], out: Path) -> None:
    """Write the student of a checkpoint as a model that `--teacher` accepts.

    A student of custom parts, or of Hugging Face parts, is written by the method `save` of these parts.

    Args:
        directory: The output directory of a run, or its directory of checkpoints.
        step: The step of the checkpoint, or "latest" or "best".
        out: The directory to write.

    Raises:
        CheckpointError: The checkpoint is missing or damaged, or its student cannot be created.
        OutputError: `out` is not empty or cannot be written.
    """
    folder = _checkpoints_of(directory)
    path = folder / checkpoint_name(RUN_ID, step) if isinstance(step, int) else find_checkpoint(folder, RUN_ID, step)
    saved = read_weights(path)
    content: dict[str, object] = {"kind": "checkpoint", "checkpoint": path_in_json(saved.path.absolute())}
    content |= {"step": saved.manifest.step, "conditions": saved.manifest.conditions}
    if saved.manifest.state.get("own"):
        export_student(saved, out, content)
        return
    student = checkpoint_student(saved)
    with exclusive_directory(out, force=False, bytes_needed=exported_bytes(student)) as claimed:
        save_decoder(student, claimed, content)


def checkpoint_student(saved: SavedWeights) -> Decoder:
    """Return the student of a checkpoint. Raise `CheckpointError` if it is no `Decoder`, or the weights do not fit."""
    path, config = saved.path, saved.manifest.state.get("student")
    try:
        if not isinstance(config, dict):
            raise CheckpointError(f"{path / MANIFEST} describes no student of reference_trainer; expected a Decoder")
        with torch.device("meta"):  # without memory and random numbers for weights that are replaced below
            decoder = Decoder(DecoderConfig(**config))
        weights = saved.whole_tensors("student", decoder.state_dict())
        decoder.load_state_dict({name: tensor[...] for name, tensor in weights.items()}, assign=True)
    except (TypeError, RuntimeError, SettingError) as error:
        raise CheckpointError(f"{path} does not fit its student: {' '.join(str(error).split())[:300]}") from error
    return decoder
