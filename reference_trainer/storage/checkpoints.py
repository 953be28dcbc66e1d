"""Checkpoints of a run: directories `{run_id}-step{N}` with the tensors of each rank and a manifest.

A checkpoint appears whole, by one rename. Its manifest has the size and the SHA-256 of every other file, so nothing is
read that was damaged, added or left out since. Files of tensors are safetensors: nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor

from reference_trainer.errors import CheckpointError, OutputError
from reference_trainer.storage.checkpoint_files import check_files, read_manifest, saved_steps
from reference_trainer.storage.checkpoint_manifest import (
    MANIFEST,
    FileEntry,
    Manifest,
    parsed_manifest,
    rank_file,
    sealed,
)
from reference_trainer.storage.files import sync
from reference_trainer.storage.links import link_checkpoints
from reference_trainer.storage.retention import check_follows, checkpoint_name, dropped

__all__ = ["DISK", "LEFT", "Disk", "checkpoint_bytes", "save_checkpoint", "sweep", "write_tensors"]

LEFT = re.compile(r"\..+\.\d+\.partial")
"""Names of what a killed writer leaves."""


class Disk:
    """What is done with the files of a checkpoint. A subclass records or fails it."""

    def write(self, path: Path, content: bytes) -> None:
        """Write a new file."""
        path.write_bytes(content)

    def sync(self, path: Path) -> None:
        """Wait until a file, or the names in a directory, are on the disk."""
        sync(path)

    def rename(self, old: Path, new: Path) -> None:
        """Give a directory another name."""
        old.rename(new)

    def free(self, directory: Path) -> int:
        """Return the bytes that can be written below a directory."""
        return shutil.disk_usage(directory).free


DISK = Disk()
OTHER_BYTES = 2**16
"""An upper estimate of the manifest and the header of a file of tensors, of which each tensor has 1 KiB more."""


def save_checkpoint(
    directory: Path,
    manifest: Manifest,
    tensors: Mapping[str, Tensor],
    *,
    keep: int = 0,
    disk: Disk = DISK,
    others: Callable[[Path], Mapping[str, FileEntry]] = lambda partial: {},
) -> Path:
    """Save a checkpoint of one process in `directory`, and return its path; then remove all but the last `keep`.

    The files are written beside it, synced and read back, then renamed; the checkpoint exists as a whole or not at all,
    also if the process is killed. The newest and the best are never removed; 0 keeps all. Links `{run_id}-latest` and
    `{run_id}-best` are made where the file system has links. tensors: on any device, in any layout.
    others: returns the files that other ranks have written in the directory that it is given, by name.
    Raise `CheckpointError` if the step is not later than every saved one; `OutputError`, which says whether the
    newest checkpoint is whole, if a file cannot be written or the disk has too little space for the tensors.
    """
    earlier = saved_steps(directory, manifest.run_id)
    check_follows(earlier, manifest.step)
    path = directory / checkpoint_name(manifest.run_id, manifest.step)
    with _failures_named(path, [directory / checkpoint_name(manifest.run_id, step) for step in earlier]):
        with _partial(path) as partial:
            _check_space(partial, tensors, disk)
            entry = write_tensors(partial / rank_file(0), tensors, disk)
            files = {rank_file(0): entry, **others(partial)}
            _publish(partial, path, manifest.model_copy(update={"files": files}), disk)
        best = None if manifest.best is None else manifest.best.step
        link_checkpoints(directory, manifest.run_id, latest=manifest.step, best=best)
        _rotate(directory, manifest.run_id, best, keep)
    return path


@contextmanager
def _failures_named(path: Path, earlier: Sequence[Path]) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        newest = _newest([*earlier, path])
        raise OutputError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}; {newest}") from error


def _newest(paths: Sequence[Path]) -> str:
    """Return which of the checkpoints that are there is the newest, and whether it is whole."""
    there = [path for path in paths if path.exists()]
    if not there:
        return "no other checkpoint exists"
    try:
        check_files(there[-1], read_manifest(there[-1]))
    except CheckpointError as error:
        return f"the newest checkpoint is damaged: {error}"
    return f"the newest checkpoint, {there[-1].name}, is whole"


def checkpoint_bytes(tensors: Iterable[Tensor]) -> int:
    """Return an upper estimate of the bytes of a checkpoint with these tensors."""
    return OTHER_BYTES + sum(tensor.numel() * tensor.element_size() + 2**10 for tensor in tensors)


def _check_space(directory: Path, tensors: Mapping[str, Tensor], disk: Disk) -> None:
    """Raise `OutputError` if the disk has too little space for the tensors and the manifest."""
    needed, free = checkpoint_bytes(tensors.values()), disk.free(directory)
    if free < needed:
        raise OutputError(f"{free:,} bytes are free, the checkpoint needs {needed:,}")


@contextmanager
def _partial(path: Path) -> Iterator[Path]:
    """Create an empty directory beside `path`; remove it if it has not been renamed."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], disk: Disk) -> FileEntry:
    """Write a file of tensors, and return its entry in the manifest. Errors: `OSError`, `SafetensorError`."""
    content = save({name: tensor.to("cpu", copy=True).contiguous() for name, tensor in tensors.items()})
    disk.write(path, content)
    disk.sync(path)
    return FileEntry(size=len(content), sha256=hashlib.sha256(content).hexdigest())


def _publish(partial: Path, path: Path, manifest: Manifest, disk: Disk) -> None:
    """Complete the directory `partial` by its manifest, check it as a reader would, and rename it to `path`."""
    text = json.dumps(sealed(manifest).model_dump(), indent="  ", allow_nan=False) + "\n"
    disk.write(partial / MANIFEST, text.encode())
    disk.sync(partial / MANIFEST)
    disk.sync(partial)
    try:
        check_files(partial, parsed_manifest(partial))
    except CheckpointError as error:
        raise OutputError(f"the checkpoint read back differs from the written one: {error}") from error
    disk.rename(partial, path)
    disk.sync(path.parent)


def _rotate(directory: Path, run_id: str, best: int | None, keep: int) -> None:
    for step in dropped(saved_steps(directory, run_id), keep=keep, best=best):
        path = directory / checkpoint_name(run_id, step)
        removed = path.with_name(f".{path.name}.{os.getpid()}.partial")
        path.rename(removed)  # first, so that a checkpoint is never there in part
        shutil.rmtree(removed)


def sweep(directory: Path) -> None:
    """Remove what killed writers left in `directory`. Call it under a lock: no other run may be writing there."""
    with suppress(FileNotFoundError):
        for entry in directory.iterdir():
            if LEFT.fullmatch(entry.name) is None:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
