"""Faulty exports, for mutants that replace a public function."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

import torch


def weights_saved_in_half_precision(
    original: Any, decoder: Any, directory: Path, manifest: dict[str, Any], **rest: Any
) -> None:
    """Cast the weights when they are saved."""
    original(copy.deepcopy(decoder).bfloat16(), directory, manifest, **rest)


def written_over_the_older_model(
    original: Any, decoder: Any, directory: Path, manifest: dict[str, Any], *, write_file: Any = None
) -> None:
    """Write one file after the other over those of an older model, and leave them where one fails."""
    from reference_trainer.errors import OutputError
    from reference_trainer.storage.files import atomic_write

    write = write_file or atomic_write
    with tempfile.TemporaryDirectory() as new:
        original(decoder, Path(new), manifest)
        for path in (Path(new, name) for name in ("model.safetensors", "config.json", "manifest.json")):
            try:
                write(directory / path.name, lambda partial, path=path: partial.write_bytes(path.read_bytes()))
            except Exception as error:
                raise OutputError(f"cannot write {directory / path.name}: {error}") from error


def random_weights_drawn_first(original: Any, directory: Path) -> Any:
    """Draw random weights that are replaced at once."""
    decoder = original(directory)
    torch.rand(len(decoder.state_dict()))
    return decoder


def weights_cast_when_read(original: Any, directory: Path) -> Any:
    """Read weights as float32, whatever they were."""
    return original(directory).float()


def version_of_another_package(original: Any) -> dict[str, str]:
    """Give the version of torch for that of the package."""
    return {**original(), "reference_trainer": str(torch.__version__)}
