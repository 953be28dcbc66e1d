"""Reading checkpoints: every file is checked against the manifest before a tensor is made, and nothing is unpickled."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from reference_trainer.errors import CheckpointError
from reference_trainer.storage.checkpoint_manifest import MANIFEST, FileEntry, Manifest, parsed_manifest, rank_file
from reference_trainer.storage.retention import checkpoint_name, resumed, steps_of

__all__ = [
    "Checkpoint",
    "check_complete",
    "check_files",
    "find_checkpoint",
    "read_checkpoint",
    "read_every_file",
    "read_manifest",
    "saved_steps",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint as read: its path, its manifest, and the tensors of one rank by name, on the CPU."""

    path: Path
    manifest: Manifest
    tensors: dict[str, Tensor]


def saved_steps(directory: Path, run_id: str) -> list[int]:
    """Return the steps of the checkpoints of a run, in order. A directory without a manifest is none."""
    try:
        names = [entry.name for entry in directory.iterdir() if (entry / MANIFEST).is_file()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"cannot read {directory}: {error.strerror}") from error
    return steps_of(run_id, names)


def check_complete(directory: Path, run_id: str) -> None:
    """Raise `CheckpointError` for a directory that has the name of a checkpoint, but no manifest.

    It is none, and in its place no checkpoint can be written: a run would end at this step.
    """
    try:
        names = [entry.name for entry in directory.iterdir() if entry.is_dir() and not (entry / MANIFEST).is_file()]
    except FileNotFoundError:
        return
    except OSError as error:
        raise CheckpointError(f"cannot read {directory}: {error.strerror}") from error
    for step in steps_of(run_id, names):
        path = directory / checkpoint_name(run_id, step)
        raise CheckpointError(f"{path} has no {MANIFEST}: step {step} cannot be saved there; rename or remove it")


def find_checkpoint(directory: Path, run_id: str, wanted: str) -> Path:
    """Return the path of the "latest" or "best" checkpoint of a run. Raise `CheckpointError` if there is none.

    The best is that of the latest one's manifest; links are not read.
    """
    steps = saved_steps(directory, run_id)
    best = read_manifest(directory / checkpoint_name(run_id, steps[-1])).best if steps else None
    try:
        step = resumed(wanted, steps, None if best is None else best.step)
    except CheckpointError as error:
        raise CheckpointError(f"{directory}: {error}") from None
    return directory / checkpoint_name(run_id, step)


def read_checkpoint(path: Path, *, rank: int = 0) -> Checkpoint:
    """Return the checkpoint at `path`, with the tensors of `rank`.

    Raise `CheckpointError` if a file is missing, was added, or differs from what was written, and for a manifest that
    is of another version, has unknown or missing fields, or is of another directory.
    """
    manifest = read_manifest(path)
    check_files(path, manifest)
    name = rank_file(rank if len(manifest.files) > 1 else 0)
    if name not in manifest.files:
        raise CheckpointError(f"{path} was saved by {manifest.world_size} ranks; it has no file of rank {rank}")
    return Checkpoint(path=path, manifest=manifest, tensors=_tensors(path / name, manifest.files[name]))


def read_every_file(path: Path) -> list[Checkpoint]:
    """Return the checkpoint at `path` as each rank that wrote a file of it has it, in order.

    Errors: those of `read_checkpoint`.
    """
    first = read_checkpoint(path)
    others = sorted(first.manifest.files.items())[1:]
    return [first, *(replace(first, tensors=_tensors(path / name, entry)) for name, entry in others)]


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of the checkpoint at `path`; the other files are not read. Errors: `CheckpointError`."""
    manifest = parsed_manifest(path)
    name = checkpoint_name(manifest.run_id, manifest.step)
    if path.resolve().name != name:
        raise CheckpointError(f"{path / MANIFEST} belongs to {name}; give the directory its old name again")
    return manifest


def check_files(path: Path, manifest: Manifest) -> None:
    """Raise `CheckpointError` unless `path` has exactly the files of the manifest, as they were written."""
    files = [rank_file(rank) for rank in range(len(manifest.files))]
    if len(files) not in (1, manifest.world_size) or files != sorted(manifest.files):
        raise CheckpointError(f"{path / MANIFEST} has the files {sorted(manifest.files)}; expected one for each rank")
    try:
        present = {entry.name for entry in path.iterdir()} - {MANIFEST}
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    if odd := present.symmetric_difference(files):
        name = min(odd)
        raise CheckpointError(f"{path / name} is {'missing' if name in files else 'not of this checkpoint'}")
    for name in files:
        _content(path / name, manifest.files[name])


def _tensors(path: Path, entry: FileEntry) -> dict[str, Tensor]:
    content = _content(path, entry)
    try:
        return load(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} is not a safetensors file: {error}") from error


def _content(path: Path, entry: FileEntry) -> bytes:
    """Return the bytes of a file. Raise `CheckpointError` unless they are those that were written."""
    try:
        if not path.is_file():
            raise CheckpointError(f"{path} is not a file")
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    if len(content) != entry.size:
        raise CheckpointError(f"{path} has {len(content)} bytes; {entry.size} were written")
    digest = hashlib.sha256(content).hexdigest()
    if digest != entry.sha256:
        raise CheckpointError(f"{path} has the SHA-256 {digest}; {entry.sha256} was written")
    return content
