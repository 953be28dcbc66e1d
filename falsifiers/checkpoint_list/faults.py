"""Wrong versions of public functions: the faults that the contract `checkpoint-list` declares."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any


def never_read(original: Any, directory: Path) -> Any:
    """Take every checkpoint with a manifest for whole."""
    return [replace(each, fault=None if each.saved_at else each.fault) for each in original(directory)]


def only_whole_ones(original: Any, directory: Path) -> Any:
    """List what can be resumed."""
    return [each for each in original(directory) if each.fault is None]


def sorted_as_text(original: Any, directory: Path) -> Any:
    """Sort by name, so that step 10 comes before step 9."""
    return sorted(original(directory), key=lambda each: each.path.name)


def newest_called_best(original: Any, found: Any) -> Any:
    """Take the best of the manifest of a checkpoint for its own mark."""
    from reference_trainer.storage.retention import Best

    return original([replace(each, best=Best(step=each.step, score=0.5)) for each in found])


def empty_is_fine(original: Any, directory: Path) -> Any:
    """Return an empty list where nothing is found."""
    from reference_trainer.errors import CheckpointError

    try:
        return original(directory)
    except CheckpointError:
        return []


def latest_exported(original: Any, directory: Path, step: int, out: Path) -> Any:
    """Export the latest, whatever step is asked for."""
    place = directory / "checkpoints" if (directory / "checkpoints").is_dir() else directory
    return original(directory, max(int(each.name.rsplit("step")[-1]) for each in place.glob("*-step*")), out)


def exported_over_files(original: Any, directory: Path, step: int, out: Path) -> Any:
    """Remove existing files."""
    for each in out.iterdir() if out.exists() else ():
        each.unlink()
    return original(directory, step, out)


def copies_put_together(self: Any, module: str, like: Any) -> Any:
    """Put the tensors of all files together, whatever their shape."""
    import torch

    names = {name.removeprefix(f"{module}."): name for name in self.files[0] if name.startswith(f"{module}.")}
    return {name: torch.cat([each[full] for each in self.files]) for name, full in names.items()}
