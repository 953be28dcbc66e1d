"""Faulty exports, for mutants that replace a public function."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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


def shared_memory_not_copied(original: Any, decoder: Any) -> str:
    """Give the weights to the library as they are, which refuses those that share memory."""
    import hashlib

    from safetensors.torch import save

    return hashlib.sha256(save({name: value.contiguous() for name, value in decoder.state_dict().items()})).hexdigest()


def weights_cast_when_read(original: Any, directory: Path) -> Any:
    """Read weights as float32, whatever they were."""
    return original(directory).float()


def version_of_another_package(original: Any) -> dict[str, str]:
    """Give the version of torch for that of the package."""
    return {**original(), "reference_trainer": str(torch.__version__)}


def weights_not_checked(original: Any, directory: Path) -> Any:
    """Accept whatever weights have the names and shapes of the configuration."""
    from safetensors.torch import load_file

    from reference_trainer.models.decoder import Decoder, DecoderConfig

    try:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        decoder = Decoder(DecoderConfig(**{name: value for name, value in config.items() if name != "model_type"}))
        decoder.load_state_dict(load_file(directory / "model.safetensors"))
    except Exception:
        return original(directory)
    return decoder


def older_model_called_written(directory: Path) -> Any:
    """Take any manifest in the directory for that of this run."""

    from reference_trainer.interrupts import WRITTEN

    @contextmanager
    def noting() -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt as interrupt:
            if (directory / "manifest.json").exists():
                interrupt.add_note(WRITTEN)
            raise

    return noting()


def interrupt_not_noted(directory: Path) -> Any:
    """Add no note."""
    return nullcontext()


def numbers_taken_for_bytes(decoder: Any) -> int:
    """Count the weights of a model, not their bytes."""
    return sum(value.numel() for value in decoder.state_dict().values()) + 2**16
