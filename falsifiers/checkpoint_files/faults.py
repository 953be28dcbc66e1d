"""Wrong versions of public functions: the faults that the contract declares."""

import contextlib
import json
import os
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any


def written_in_place(
    directory: Path, manifest: Any, tensors: Any, *, keep: int = 0, disk: Any = None, others: Any = lambda path: {}
) -> Any:
    import hashlib

    from safetensors.torch import save

    from reference_trainer.storage.checkpoints import DISK, FileEntry, seal

    disk = disk or DISK
    path = directory / f"{manifest.run_id}-step{manifest.step}"
    path.mkdir(parents=True, exist_ok=True)
    content = save({name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()})
    entry = FileEntry(size=len(content), sha256=hashlib.sha256(content).hexdigest())
    files = {"rank-00000.safetensors": entry, **others(path)}
    described = json.dumps(seal(manifest.model_copy(update={"files": files})).model_dump()).encode()
    for file, written in (("manifest.json", described), ("rank-00000.safetensors", content)):
        disk.write(path / file, written)
        disk.sync(path / file)
    _linked_and_rotated(directory, manifest, keep)
    return path


def _linked_and_rotated(directory: Path, manifest: Any, keep: int) -> None:
    """Link the saved checkpoint, and remove old ones as a whole."""
    from reference_trainer.storage.checkpoints import link_checkpoints, saved_steps
    from reference_trainer.storage.retention import steps_to_remove

    best = None if manifest.best is None else manifest.best.step
    link_checkpoints(directory, manifest.run_id, latest=manifest.step, best=best)
    for step in steps_to_remove(saved_steps(directory, manifest.run_id), keep=keep, best=best):
        removed = directory / f".{manifest.run_id}-step{step}.{os.getpid()}.partial"
        (directory / f"{manifest.run_id}-step{step}").rename(removed)
        shutil.rmtree(removed)


def never_synced(original: Any, *args: Any, disk: Any = None, **rest: Any) -> Any:
    from reference_trainer.storage.checkpoints import Disk

    inner = disk or Disk()
    quiet = type("Quiet", (Disk,), {"write": lambda _, *a: inner.write(*a), "rename": lambda _, *a: inner.rename(*a)})
    return original(*args, disk=quiet(), **rest)


def failed_save_ignored(original: Any, directory: Path, manifest: Any, tensors: Any, **rest: Any) -> Any:
    from reference_trainer.errors import OutputError

    with contextlib.suppress(OutputError):
        return original(directory, manifest, tensors, **rest)
    return directory


def later_ones_deleted(original: Any, directory: Path, manifest: Any, tensors: Any, **rest: Any) -> Any:
    from reference_trainer.storage.checkpoints import saved_steps

    for step in saved_steps(directory, manifest.run_id):
        if step >= manifest.step:
            shutil.rmtree(directory / f"{manifest.run_id}-step{step}")
    return original(directory, manifest, tensors, **rest)


def links_absolute(original: Any, directory: Path, manifest: Any, tensors: Any, **rest: Any) -> Any:
    path = original(directory, manifest, tensors, **rest)
    for link in (directory / f"{manifest.run_id}-{name}" for name in ("latest", "best")):
        if link.is_symlink():
            target = link.resolve()
            link.unlink()
            link.symlink_to(target)
    return path


def link_trusted(original: Any, directory: Path, run_id: str, wanted: str) -> Any:
    link = directory / f"{run_id}-{wanted}"
    return link.resolve() if link.exists() else original(directory, run_id, wanted)


def manifest_not_required(original: Any, directory: Path, run_id: str) -> Any:
    from reference_trainer.storage.retention import steps_of

    return steps_of(run_id, [path.name for path in directory.iterdir() if path.is_dir()]) if directory.exists() else []


def read_without_digests(original: Any, path: Path, *, rank: int = 0) -> Any:
    from safetensors.torch import load_file

    from reference_trainer.storage.checkpoints import Checkpoint, read_manifest

    try:
        tensors = load_file(path / f"rank-{rank:05d}.safetensors")
    except Exception:
        return original(path, rank=rank)
    return Checkpoint(path=path, manifest=read_manifest(path), tensors=tensors)


def unpickled(original: Any, path: Path, *, rank: int = 0) -> Any:
    file = path / "rank-00000.safetensors"
    with contextlib.suppress(Exception):
        pickle.loads(file.read_bytes() if file.is_file() else b"")
    return original(path, rank=rank)


def file_of_rank_0_for_all(original: Any, path: Path, *, rank: int = 0) -> Any:
    return original(path, rank=0)


def never_read(original: Any, directory: Path) -> Any:
    return [replace(entry, fault=None if entry.saved_at else entry.fault) for entry in original(directory)]
