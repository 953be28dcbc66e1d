"""Wrong versions of public functions: the faults that the contract `checkpoint-files` declares."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch

from falsifiers.checkpoint_files.manifests import edited


def written_in_place(
    directory: Path, manifest: Any, tensors: Any, *, keep: int = 0, disk: Any = None, others: Any = lambda path: {}
) -> Any:
    """Write each file under its final name, the manifest first."""
    import hashlib

    from safetensors.torch import save

    from reference_trainer.storage.checkpoint_manifest import FileEntry, sealed
    from reference_trainer.storage.checkpoints import DISK

    disk = disk or DISK
    path = directory / f"{manifest.run_id}-step{manifest.step}"
    path.mkdir(parents=True, exist_ok=True)
    content = save({name: each.detach().clone().contiguous() for name, each in tensors.items()})
    entry = FileEntry(size=len(content), sha256=hashlib.sha256(content).hexdigest())
    files = {"rank-00000.safetensors": entry, **others(path)}
    described = json.dumps(sealed(manifest.model_copy(update={"files": files})).model_dump()).encode()
    for file, written in (("manifest.json", described), ("rank-00000.safetensors", content)):
        disk.write(path / file, written)
        disk.sync(path / file)
    _linked_and_rotated(directory, manifest, keep)
    return path


def _linked_and_rotated(directory: Path, manifest: Any, keep: int) -> None:
    """Link the saved checkpoint, and remove old ones as a whole."""
    from reference_trainer.storage.checkpoint_files import saved_steps
    from reference_trainer.storage.links import link_checkpoints
    from reference_trainer.storage.retention import dropped

    best = None if manifest.best is None else manifest.best.step
    link_checkpoints(directory, manifest.run_id, latest=manifest.step, best=best)
    for step in dropped(saved_steps(directory, manifest.run_id), keep=keep, best=best):
        removed = directory / f".{manifest.run_id}-step{step}.{os.getpid()}.partial"
        (directory / f"{manifest.run_id}-step{step}").rename(removed)
        shutil.rmtree(removed)


def space_not_checked(original: Any, *given: Any, disk: Any = None, **rest: Any) -> Any:
    """Take the disk for endless."""
    from reference_trainer.storage.checkpoints import DISK

    inner = disk or DISK

    class Endless(type(inner)):  # the class of any disk
        def free(self, directory: Path) -> int:
            return 2**60

    endless = Endless.__new__(Endless)
    endless.__dict__ = inner.__dict__
    return original(*given, disk=endless, **rest)


def leftovers_published(original: Any, directory: Path, manifest: Any, tensors: Any, **rest: Any) -> Any:
    """Keep the files that lie under the name of the partial checkpoint."""
    partial = directory / f".{manifest.run_id}-step{manifest.step}.{os.getpid()}.partial"
    left = {each.name: each.read_bytes() for each in partial.iterdir()} if partial.exists() else {}
    path = original(directory, manifest, tensors, **rest)
    for name, content in left.items():
        (path / name).write_bytes(content)
    return path


def unlinked(original: Any, directory: Path, run_id: str, *, latest: int | None, best: int | None) -> None:
    """Remove everything that has the name of a link."""
    for name in ("latest", "best"):
        (directory / f"{run_id}-{name}").unlink(missing_ok=True)
    original(directory, run_id, latest=latest, best=best)


def damage_not_looked_for(original: Any, directory: Path, manifest: Any, tensors: Any, **rest: Any) -> Any:
    """Say that the newest is whole."""
    from reference_trainer.errors import OutputError
    from reference_trainer.storage.checkpoint_files import saved_steps

    try:
        return original(directory, manifest, tensors, **rest)
    except OutputError as error:
        name = f"{manifest.run_id}-step{max(saved_steps(directory, manifest.run_id), default=0)}"
        raise OutputError(f"{str(error).split(';')[0]}; the newest checkpoint, {name}, is whole") from error


def never_synced(original: Any, *given: Any, disk: Any = None, **rest: Any) -> Any:
    """Leave it to the kernel when files reach the disk."""
    from reference_trainer.storage.checkpoints import Disk

    inner = disk or Disk()
    quiet = type("Quiet", (Disk,), {"write": lambda _, *a: inner.write(*a), "rename": lambda _, *a: inner.rename(*a)})
    return original(*given, disk=quiet(), **rest)


def saved_in_half_precision(original: Any, directory: Path, manifest: Any, tensors: Any, **rest: Any) -> Any:
    """Cast float32 tensors when they are saved."""
    cast = {n: each.to(torch.bfloat16) if each.dtype is torch.float32 else each for n, each in tensors.items()}
    return original(directory, manifest, cast, **rest)


def failed_save_ignored(original: Any, directory: Path, manifest: Any, tensors: Any, **rest: Any) -> Any:
    """Go on without the checkpoint."""
    from reference_trainer.errors import OutputError

    with contextlib.suppress(OutputError):
        return original(directory, manifest, tensors, **rest)
    return directory


def later_ones_deleted(original: Any, directory: Path, manifest: Any, tensors: Any, **rest: Any) -> Any:
    """Delete later checkpoints instead of refusing."""
    from reference_trainer.storage.checkpoint_files import saved_steps

    for step in saved_steps(directory, manifest.run_id):
        if step >= manifest.step:
            shutil.rmtree(directory / f"{manifest.run_id}-step{step}")
    return original(directory, manifest, tensors, **rest)


def removed_in_place(original: Any, directory: Path, manifest: Any, tensors: Any, *, keep: int = 0, **r: Any) -> Any:
    """Remove the files of old checkpoints one by one, under their names."""
    from reference_trainer.storage.checkpoint_files import saved_steps
    from reference_trainer.storage.retention import dropped

    path = original(directory, manifest, tensors, **r)
    best = None if manifest.best is None else manifest.best.step
    for step in dropped(saved_steps(directory, manifest.run_id), keep=keep, best=best):
        old = directory / f"{manifest.run_id}-step{step}"
        for each in sorted(old.iterdir(), reverse=True):
            each.unlink()
        old.rmdir()
    return path


def links_absolute(original: Any, directory: Path, manifest: Any, tensors: Any, **rest: Any) -> Any:
    """Let links refer to absolute paths."""
    path = original(directory, manifest, tensors, **rest)
    for link in (directory / f"{manifest.run_id}-{name}" for name in ("latest", "best")):
        if link.is_symlink():
            target = link.resolve()
            link.unlink()
            link.symlink_to(target)
    return path


def link_trusted(original: Any, directory: Path, run_id: str, wanted: str) -> Any:
    """Return what the link refers to, if there is something."""
    link = directory / f"{run_id}-{wanted}"
    return link.resolve() if link.exists() else original(directory, run_id, wanted)


def manifest_not_required(original: Any, directory: Path, run_id: str) -> Any:
    """List every directory with the name of a checkpoint."""
    from reference_trainer.storage.retention import steps_of

    return steps_of(run_id, [each.name for each in directory.iterdir() if each.is_dir()]) if directory.exists() else []


def files_not_checked(path: Path, manifest: Any) -> None:
    """Check neither names nor digests."""


def read_without_digests(original: Any, path: Path, *, rank: int = 0) -> Any:
    """Read the tensors of the file as they are."""
    from safetensors.torch import load_file

    from reference_trainer.storage.checkpoint_files import Checkpoint, read_manifest

    try:
        tensors = load_file(path / f"rank-{rank:05d}.safetensors")
    except Exception:
        return original(path, rank=rank)
    return Checkpoint(path=path, manifest=read_manifest(path), tensors=tensors)


def unpickled(original: Any, path: Path, *, rank: int = 0) -> Any:
    """Try to unpickle the file first."""
    file = path / "rank-00000.safetensors"
    with contextlib.suppress(Exception):
        pickle.loads(file.read_bytes() if file.is_file() else b"")
    return original(path, rank=rank)


def file_of_rank_0_for_all(original: Any, path: Path, *, rank: int = 0) -> Any:
    """Give every rank the tensors of rank 0."""
    return original(path, rank=0)


def future_version_accepted(original: Any, path: Path) -> Any:
    """Read any version as this one."""
    if b"checkpoint/2" not in ((path / "manifest.json").read_bytes() if (path / "manifest.json").is_file() else b""):
        return original(path)
    with tempfile.TemporaryDirectory() as name:
        text = (path / "manifest.json").read_text().replace("checkpoint/2", "checkpoint/1")
        Path(name, "manifest.json").write_text(text)
        edited(Path(name, "manifest.json"), lambda tree: None)
        return original(Path(name))


def defaults_filled_in(original: Any, path: Path) -> Any:
    """Take defaults for fields that are missing, and ignore unknown ones of the best."""
    from reference_trainer.storage.checkpoint_manifest import Manifest

    with contextlib.suppress(ValueError, OSError):
        return Manifest.model_validate_json((path / "manifest.json").read_bytes())
    return original(path)


def leftovers_left(directory: Path) -> None:
    """Remove nothing."""


def hidden_files_removed(original: Any, directory: Path) -> None:
    """Remove whatever starts with a dot."""
    original(directory)
    for each in directory.glob(".*") if directory.exists() else ():
        each.unlink()


def manifest_believed(original: Any, path: Path) -> Any:
    """Read the manifest without its digest."""
    if not (path / "manifest.json").is_file():
        return original(path)
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(path / "manifest.json", name)
        with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):
            edited(Path(name, "manifest.json"), lambda tree: None)
        return original(Path(name))
