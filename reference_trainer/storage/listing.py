"""The checkpoints in a directory: which there are, what each takes, and whether it is whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reference_trainer.errors import CheckpointError
from reference_trainer.storage.checkpoint_files import check_files, read_manifest
from reference_trainer.storage.checkpoint_manifest import MANIFEST, Manifest
from reference_trainer.storage.retention import Best, parsed_name

__all__ = ["Listed", "verify_checkpoints"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A directory with the name of a checkpoint.

    saved_at: seconds since 1970, of the manifest; None without one. size: bytes of all its files. fault: why it cannot
    be resumed; None if it is whole. best: of the run up to its step, as its manifest says.
    """

    path: Path
    run_id: str
    step: int
    saved_at: float | None
    size: int
    fault: str | None
    best: Best | None


def verify_checkpoints(directory: Path) -> list[Listed]:
    """Return the checkpoints of every run in `directory`, by run and step; every file is read and compared.

    Directories without a manifest are listed too, with that fault. Links are left out. Raise `CheckpointError` if the
    directory cannot be read.
    """
    try:
        there = [entry for entry in directory.iterdir() if entry.is_dir() and not entry.is_symlink()]
    except OSError as error:
        raise CheckpointError(f"cannot read {directory}: {error.strerror}") from error
    named = [(name, entry) for entry in there if (name := parsed_name(entry.name)) is not None]
    return [_entry(path, *name) for name, path in sorted(named)]


def _entry(path: Path, run_id: str, step: int) -> Listed:
    manifest, fault = _checked(path)
    files = [entry.stat() for entry in path.iterdir() if entry.is_file()]
    times = [(path / MANIFEST).stat().st_mtime] if (path / MANIFEST).is_file() else []
    return Listed(
        path=path,
        run_id=run_id,
        step=step,
        saved_at=next(iter(times), None),
        size=sum(file.st_size for file in files),
        fault=fault,
        best=None if manifest is None else manifest.best,
    )


def _checked(path: Path) -> tuple[Manifest | None, str | None]:
    """Return the manifest, if it can be read, and the fault of a checkpoint, if it has one."""
    manifest = None
    try:
        manifest = read_manifest(path)
        check_files(path, manifest)
    except CheckpointError as error:
        return manifest, str(error)
    return manifest, None
