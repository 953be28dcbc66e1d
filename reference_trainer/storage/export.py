"""Export and load a model: model.safetensors, config.json and manifest.json.

The manifest is written last, with the digests of the other two files: an incomplete or mixed directory is detected.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from reference_trainer import __version__
from reference_trainer.errors import ModelFileError, OutputError, SettingError, similar_path
from reference_trainer.interrupts import WRITTEN
from reference_trainer.models.decoder import Decoder, DecoderConfig
from reference_trainer.storage.files import atomic_write, file_digest

WEIGHTS, CONFIG, MANIFEST = "model.safetensors", "config.json", "manifest.json"
INDEX = f"{WEIGHTS}.index.json"  # lists the weight files if there are several
ADAPTER = "adapter_model.safetensors"
MODEL_FILES = ((INDEX, CONFIG), (ADAPTER, "adapter_config.json"), (WEIGHTS, CONFIG))
"""The two files that a manifest describes: with several weight files, for an adapter, or with one weight file."""
MODEL_TYPE = "reference_trainer.decoder"
HINT = "expected the directory of a model written by reference-trainer"


def exported_bytes(decoder: nn.Module) -> int:
    """Return an estimate of the bytes that `save_decoder` writes: the bytes of the weights, and 64 KiB for all else."""
    weights: dict[str, Tensor] = decoder.state_dict()
    return sum(value.numel() * value.element_size() for value in weights.values()) + 2**16


def save_decoder(
    decoder: Decoder,
    directory: Path,
    manifest: dict[str, object],
    *,
    write_file: Callable[[Path, Callable[[Path], object]], None] = atomic_write,
) -> None:
    """Write the weights, the configuration, then `manifest` with the digests of both files.

    `write_file` writes every file atomically. If a file cannot be written, remove the new files and the manifest, and
    raise `OutputError` with the file and the cause.
    """
    # The old manifest is removed first and the new one is written last: a directory with a manifest is complete.
    weights = _contiguous(decoder)
    config = {"model_type": MODEL_TYPE, **asdict(decoder.config)}
    old_inodes = _inodes(directory)
    name = MANIFEST  # the file that is being written, for the error
    try:
        (directory / MANIFEST).unlink(missing_ok=True)
        name = WEIGHTS
        write_file(directory / WEIGHTS, lambda path: path.write_bytes(save(weights)))
        name = CONFIG
        write_file(directory / CONFIG, lambda path: _write_json(path, config))
        name = MANIFEST
        digests = {file_name: file_digest(directory / file_name) for file_name in (WEIGHTS, CONFIG)}
        write_file(directory / MANIFEST, lambda path: _write_json(path, {**manifest, "sha256": digests}))
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"cannot write {directory / name}: {reason}") from error
    finally:
        if not (directory / MANIFEST).exists():
            _remove_new_files(directory, old_inodes)


@contextmanager
def note_interrupts(directory: Path) -> Iterator[None]:
    """Add the note `WRITTEN` to a KeyboardInterrupt if a model was written to `directory` within the context."""
    old_identity = _file_identity(directory / MANIFEST)
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if _file_identity(directory / MANIFEST) not in (None, old_identity):
            interrupt.add_note(WRITTEN)
        raise


def _file_identity(path: Path) -> tuple[int, int] | None:
    """Return inode and modification time (a new file may reuse an old inode); None if the file does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def weights_digest(decoder: nn.Module) -> str:
    """Return the SHA-256, in hexadecimal digits, of the weights file that `save_decoder` writes for a model."""
    return hashlib.sha256(save(_contiguous(decoder))).hexdigest()


def weight_files(directory: Path) -> list[Path]:
    """Return the files of the weights in `directory`: one file, or the shards that the index names, sorted by name.

    Raise `ModelFileError` if the directory has neither a weights file nor a readable index.
    """
    if (directory / WEIGHTS).is_file():
        return [directory / WEIGHTS]
    try:
        shards = set(json.loads((directory / INDEX).read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelFileError(f"{directory} has neither {WEIGHTS} nor a readable {INDEX}: {error}") from error
    return [directory / name for name in sorted(shards)]


def has_weights(directory: Path) -> bool:
    """Return whether a directory has a `.safetensors` or `.bin` file."""
    return any(entry.suffix in (".safetensors", ".bin") for entry in directory.iterdir())


def files_digest(paths: Sequence[Path]) -> str:
    """Return the SHA-256 of one file; for several files, of the output of `sha256sum FILE...` in their directory.

    Files are read in pieces, so a file need not fit into memory. Raise `ModelFileError` if a file cannot be read.
    """
    try:
        digests = [file_digest(file) for file in paths]
    except OSError as error:
        raise ModelFileError(f"cannot read {error.filename}: {error.strerror}") from error
    if len(digests) == 1:
        return digests[0]
    lines = (f"{digest}  {path.name}\n" for digest, path in zip(digests, paths, strict=True))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _contiguous(decoder: nn.Module) -> dict[str, Tensor]:
    """Return the weights as `safetensors.torch.save` requires: contiguous, with a copy of each that shares memory."""
    weights: dict[str, Tensor] = {}
    addresses: set[int] = set()
    for name, value in decoder.state_dict().items():
        weights[name] = value.contiguous()
        memory = weights[name].untyped_storage().data_ptr()  # equal for views of one tensor, such as tied weights
        if memory in addresses:
            weights[name] = value.clone()
        addresses.add(memory)
    return weights


def _inodes(directory: Path) -> dict[Path, int | None]:
    """Return the inodes of weights and configuration; an atomic write gives a file another inode."""
    paths = [directory / name for name in (WEIGHTS, CONFIG)]
    return {path: path.stat().st_ino if path.exists() else None for path in paths}


def _remove_new_files(directory: Path, old_inodes: dict[Path, int | None]) -> None:
    """Remove the new files of weights and configuration, since the directory may have files of two models."""
    for path, inode in _inodes(directory).items():
        if inode != old_inodes[path]:
            path.unlink(missing_ok=True)


def load_decoder(directory: Path) -> Decoder:
    """Return the model in `directory`, on the CPU, in the saved dtype. Raise `ModelFileError` if that fails."""
    config, path = _config(directory / CONFIG), directory / WEIGHTS
    try:
        with torch.device("meta"):  # allocates and draws nothing, because the weights are replaced
            decoder = Decoder(config)
        weights = load_file(path)
        decoder.load_state_dict(weights, assign=True)
    except (OSError, SafetensorError) as error:
        raise ModelFileError(f"cannot read {path}: {error}") from error
    except RuntimeError as error:
        raise ModelFileError(f"{path} does not match {CONFIG}: {' '.join(str(error).split())[:300]}") from error
    broken = [name for name, value in weights.items() if not value.is_floating_point() or not value.isfinite().all()]
    if broken:
        raise ModelFileError(f"{path}: {broken[0]} has values that are not finite; did the run diverge?")
    return decoder


def verify_manifest(directory: Path) -> None:
    """Raise `ModelFileError` unless the manifest in `directory` has the digests of the two files that it describes."""
    try:
        content = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        recorded = content.get("sha256") if isinstance(content, dict) else None
        names = recorded if isinstance(recorded, dict) else {}
        # The name of the first file shows which two files the manifest describes.
        described = next((files for files in MODEL_FILES if files[0] in names), MODEL_FILES[-1])
        actual = {name: file_digest(directory / name) for name in described}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"cannot verify {directory / MANIFEST}: {error}; {HINT}") from error
    if recorded is None:
        raise ModelFileError(f"cannot verify {directory / MANIFEST}: missing key 'sha256'; {HINT}")
    if recorded != actual:
        raise ModelFileError(f"{directory / MANIFEST} does not match the files beside it")


def _config(path: Path) -> DecoderConfig:
    """Return the configuration of a decoder. Raise `ModelFileError` if the file is of another model."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(f"cannot read {path}: {reason}{similar_path(path)}; {HINT}") from error
    kind = raw.pop("model_type", None) if isinstance(raw, dict) else None
    if kind != MODEL_TYPE:
        raise ModelFileError(
            f"invalid model_type {kind!r} in {path}: expected {MODEL_TYPE!r}; load a model of Hugging Face by --student"
        )
    try:
        return DecoderConfig(**raw)
    except (TypeError, SettingError) as error:
        raise ModelFileError(f"{path}: {error}; {HINT}") from error


def versions() -> dict[str, str]:
    """Return the versions of this package, torch and Python, on which a result depends."""
    return {"reference_trainer": __version__, "torch": torch.__version__, "python": platform.python_version()}


def _write_json(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent="  ", allow_nan=False) + "\n", encoding="utf-8")
