"""What a run leaves behind: model.safetensors, config.json and manifest.json; and reading a model back.

The manifest goes last and holds the digests of the other two, so a directory without it, or with another one's, shows.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from reference_trainer import __version__
from reference_trainer.errors import ModelFileError, OutputError, SettingError
from reference_trainer.files import write_whole
from reference_trainer.interrupts import WRITTEN
from reference_trainer.models import Decoder, DecoderConfig

__all__ = [
    "CONFIG",
    "MANIFEST",
    "WEIGHTS",
    "exported_bytes",
    "interrupts_noted",
    "load_decoder",
    "refuse_unlike_manifest",
    "save_decoder",
    "versions",
    "weights_digest",
]

WEIGHTS, CONFIG, MANIFEST = "model.safetensors", "config.json", "manifest.json"
MODEL_TYPE = "reference_trainer.decoder"


def exported_bytes(decoder: Decoder) -> int:
    """About what `save_decoder` writes, with room for the two small files."""
    return sum(int(value.nbytes) for value in decoder.state_dict().values()) + 2**16


def save_decoder(decoder: Decoder, directory: Path, manifest: dict[str, Any]) -> None:
    """Weights, configuration, then `manifest` with the digests of both. Each file appears whole or not at all.

    Errors: `OutputError`; what was not written is then said. Without its manifest nothing new stays there.
    """
    weights = _on_the_cpu(decoder)
    config = {"model_type": MODEL_TYPE, **asdict(decoder.config)}
    before = _inodes(directory)
    name = MANIFEST
    try:
        (directory / MANIFEST).unlink(missing_ok=True)  # that of an older run doesn't describe what comes now
        name = WEIGHTS
        write_whole(directory / WEIGHTS, lambda path: path.write_bytes(save(weights)))
        name = CONFIG
        write_whole(directory / CONFIG, lambda path: _write_json(path, config))
        name = MANIFEST
        digests = {each: _digest(directory / each) for each in (WEIGHTS, CONFIG)}
        write_whole(directory / MANIFEST, lambda path: _write_json(path, {**manifest, "sha256": digests}))
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(f"{directory / name} could not be written: {reason}") from error
    finally:
        if not (directory / MANIFEST).exists():
            _remove_unlike(before, directory)


@contextmanager
def interrupts_noted(directory: Path) -> Iterator[None]:
    """A KeyboardInterrupt out of here bears the note `WRITTEN` if a model was put into `directory` meanwhile."""
    older = _stamp(directory / MANIFEST)
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if _stamp(directory / MANIFEST) not in (None, older):
            interrupt.add_note(WRITTEN)
        raise


def _stamp(path: Path) -> tuple[int, int] | None:
    """What tells a file from another one in its place, also where that got its inode; None without a file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def weights_digest(decoder: Decoder) -> str:
    """SHA-256 of the file that `save_decoder` writes for these weights."""
    return hashlib.sha256(save(_on_the_cpu(decoder))).hexdigest()


def _on_the_cpu(decoder: Decoder) -> dict[str, Tensor]:
    return {name: value.detach().cpu().contiguous() for name, value in decoder.state_dict().items()}


def _inodes(directory: Path) -> dict[Path, int | None]:
    paths = [directory / each for each in (WEIGHTS, CONFIG)]
    return {path: path.stat().st_ino if path.exists() else None for path in paths}


def _remove_unlike(before: dict[Path, int | None], directory: Path) -> None:
    """Removes what was put there since: it would refuse the next run its place, or be read with another's rest."""
    for path, inode in _inodes(directory).items():
        if inode != before[path]:
            path.unlink(missing_ok=True)


def load_decoder(directory: Path) -> Decoder:
    """The model in `directory`, on the CPU, in the dtype it was saved in. Errors: `ModelFileError`."""
    config, path = _config(directory / CONFIG), directory / WEIGHTS
    try:
        with torch.device("meta"):  # neither memory nor random numbers for weights that are replaced at once
            decoder = Decoder(config)
        weights = load_file(path)
        decoder.load_state_dict(weights, assign=True)
    except (OSError, SafetensorError) as error:
        raise ModelFileError(f"{path} can't be read: {error}") from error
    except RuntimeError as error:
        raise ModelFileError(f"{path} doesn't fit {CONFIG}: {' '.join(str(error).split())[:300]}") from error
    broken = [name for name, value in weights.items() if not value.is_floating_point() or not value.isfinite().all()]
    if broken:
        raise ModelFileError(f"{path}: {broken[0]} holds values that aren't finite numbers; a diverged run?")
    return decoder


def refuse_unlike_manifest(directory: Path) -> None:
    """`ModelFileError` unless the manifest in `directory` has the digests of the two files beside it."""
    try:
        written = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))["sha256"]
        found = {each: _digest(directory / each) for each in (WEIGHTS, CONFIG)}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{directory / MANIFEST} can't be compared with the files beside it: {error!r}") from error
    if written != found:
        raise ModelFileError(f"{directory / MANIFEST} belongs to other files than those beside it")


def _config(path: Path) -> DecoderConfig:
    hint = "expected the directory of a model that reference-trainer wrote"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} can't be read ({error}); {hint}") from error
    if not isinstance(raw, dict) or raw.pop("model_type", None) != MODEL_TYPE:
        raise ModelFileError(f"{path} is of another kind of model; {hint}")
    try:
        return DecoderConfig(**raw)
    except (TypeError, SettingError) as error:
        raise ModelFileError(f"{path}: {error}; {hint}") from error


def versions() -> dict[str, str]:
    """What a result may depend on beside its settings."""
    return {"reference_trainer": __version__, "torch": torch.__version__, "python": platform.python_version()}


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
