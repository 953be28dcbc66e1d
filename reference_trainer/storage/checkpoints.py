"""Save and read checkpoints: directories `{run_id}-step{N}` with the tensors of a run and a manifest.

The directory of a checkpoint appears by one rename, when all its files are complete. The manifest has the size and the
SHA-256 of every other file; a reader compares all files with the manifest before it creates tensors. Tensors are in
safetensors files: nothing is unpickled. With FSDP2, every rank writes a file of its shards, then rank 0 writes the
manifest; otherwise there is one file, of rank 0. The links to the latest and the best checkpoint are for users; this
package names them in hints, but does not resume by them. A rewind moves later checkpoints to another directory, and
deletes nothing.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from reference_trainer.errors import CheckpointError, OutputError
from reference_trainer.storage.files import file_digest, is_partial, partial_path, sync
from reference_trainer.storage.retention import (
    Best,
    check_follows,
    checkpoint_name,
    parse_name,
    step_to_resume,
    steps_of,
    steps_to_remove,
    steps_to_set_aside,
)

Result = TypeVar("Result")

FORMAT = "reference-trainer/checkpoint/1"
"""Name and version of the format, which every manifest has."""
MANIFEST = "manifest.json"
"""Name of the file with the manifest."""


def rank_file(rank: int) -> str:
    """Return the name of the file with the tensors of a rank."""
    return f"rank-{rank:05d}.safetensors"


class FileEntry(BaseModel):
    """The size and the digest with which a file of a checkpoint was written."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    size: int = Field(ge=0)
    sha256: str


class Manifest(BaseModel):
    """The manifest of a checkpoint.

    Attributes:
        format: The name of this format.
        run_id: The run.
        step: The number of steps taken.
        world_size: The number of ranks.
        strategy: The way in which the model is divided among the ranks.
        best: The best evaluated step so far.
        conditions: Values that must be equal in a run that resumes from the checkpoint.
        state: All other values that a resumed run restores, except tensors.
        files: The other files by name; set when the checkpoint is saved.
        sha256: Digest of all other fields; set by `seal`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    format: str = FORMAT
    run_id: str
    step: int = Field(ge=0)
    world_size: int = Field(default=1, ge=1)
    strategy: str = "one process"
    best: Best | None = None
    conditions: dict[str, object]
    state: dict[str, Any]
    files: dict[str, FileEntry] = {}
    sha256: str = ""


def seal(manifest: Manifest) -> Manifest:
    """Return the manifest with its digest, so that readers can detect changes of the file."""
    return manifest.model_copy(update={"sha256": _digest(manifest)})


def parse_manifest(path: Path) -> Manifest:
    """Return the manifest in the directory `path`. Raise `CheckpointError` if it is invalid or of another version."""
    try:
        content = (path / MANIFEST).read_bytes()
        raw = json.loads(content, parse_constant=_refuse_constant)
    except OSError as error:
        raise CheckpointError(f"cannot read {path / MANIFEST}: {error.strerror}; expected a checkpoint") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path / MANIFEST} is not JSON: {error}") from error
    version = raw.get("format") if isinstance(raw, dict) else None
    if version != FORMAT:
        raise CheckpointError(f"{path / MANIFEST} has format {version!r}; expected a checkpoint, with {FORMAT!r}")
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"]))
        raise CheckpointError(f"{path / MANIFEST}: invalid {location}: {first['msg']}") from error
    if _canonical(manifest.model_dump()) != _canonical(raw):  # pydantic accepts a missing field that has a default
        raise CheckpointError(f"{path / MANIFEST} has a missing or unknown field")
    if _digest(manifest) != manifest.sha256:
        raise CheckpointError(f"{path / MANIFEST} was changed: its SHA-256 is {_digest(manifest)}")
    return manifest


def _digest(manifest: Manifest) -> str:
    """Return the SHA-256 of all fields but `sha256`."""
    return hashlib.sha256(_canonical(manifest.model_dump(exclude={"sha256"})).encode()).hexdigest()


def _refuse_constant(name: str) -> None:
    """Raise `ValueError` for NaN or Infinity, which Python's parser accepts."""
    raise ValueError(f"{name} is not JSON")


def _canonical(value: object) -> str:
    """Return JSON values as text that does not depend on the order of keys."""
    return json.dumps(value, sort_keys=True)


def link_checkpoints(directory: Path, run_id: str, *, latest: int | None, best: int | None) -> None:
    """Point the relative links `{run_id}-latest` and `{run_id}-best` to the checkpoints of these steps.

    A link is removed if its step is None or has no checkpoint in `directory`. Errors, such as on a file system without
    links, are ignored, because the manifests have the same information.
    """
    for name, step in (("latest", latest), ("best", best)):
        target = None
        if step is not None and (directory / checkpoint_name(run_id, step)).is_dir():
            target = checkpoint_name(run_id, step)
        _link(directory / f"{run_id}-{name}", target)


def _link(link: Path, target: str | None) -> None:
    """Point `link` to `target` by one rename; remove the link if `target` is None. Ignore errors."""
    temporary = partial_path(link)
    with suppress(OSError):
        temporary.unlink(missing_ok=True)
        if target is not None:
            temporary.symlink_to(target)
            temporary.replace(link)
        elif link.is_symlink():
            link.unlink()
    with suppress(OSError):
        temporary.unlink()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint in memory: its path, its manifest, and the tensors of one rank by name, on the CPU."""

    path: Path
    manifest: Manifest
    tensors: dict[str, Tensor]


def named_steps(directory: Path, run_id: str, is_included: Callable[[Path], bool] = lambda path: True) -> list[int]:
    """Return the sorted steps of the files and directories with the name of a checkpoint for which `is_included` holds.

    Raise `CheckpointError` if `directory` cannot be read; a missing directory has no steps.
    """
    try:
        names = [entry.name for entry in directory.iterdir() if is_included(entry)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"cannot read {directory}: {error.strerror}") from error
    return steps_of(run_id, names)


def saved_steps(directory: Path, run_id: str) -> list[int]:
    """Return the steps of the checkpoints of a run, in order. A directory without a manifest is no checkpoint."""
    return named_steps(directory, run_id, lambda path: (path / MANIFEST).is_file())


def check_complete(directory: Path, run_id: str) -> None:
    """Raise `CheckpointError` for the first file or directory that has the name of a checkpoint, but no manifest.

    A checkpoint cannot be written to an existing path, so a run would fail at this step.
    """
    for step in named_steps(directory, run_id, lambda path: not (path / MANIFEST).is_file()):
        path = directory / checkpoint_name(run_id, step)
        raise CheckpointError(f"{path} has no {MANIFEST}: step {step} cannot be saved there; rename or remove it")


def find_checkpoint(directory: Path, run_id: str, wanted: str) -> Path:
    """Return the path of the "latest" or "best" checkpoint of a run. Raise `CheckpointError` if there is none.

    The best step is read from the manifest of the latest checkpoint; links are not read.
    """
    steps = saved_steps(directory, run_id)
    best = None
    if steps:
        best = read_manifest(directory / checkpoint_name(run_id, steps[-1])).best
    try:
        step = step_to_resume(wanted, steps, None if best is None else best.step)
    except CheckpointError as error:
        raise CheckpointError(f"{directory}: {error}") from None
    return directory / checkpoint_name(run_id, step)


def read_checkpoint(path: Path, *, rank: int = 0) -> Checkpoint:
    """Return the checkpoint at `path`, with the tensors of `rank`; if there is one file, with the tensors of rank 0.

    Raise `CheckpointError` if a file is missing, was added or was changed, and if the manifest is of another version,
    has unknown or missing fields, or belongs to another directory.
    """
    manifest = read_manifest(path)
    check_files(path, manifest)
    name = rank_file(rank if len(manifest.files) > 1 else 0)  # a single file is read by all ranks
    if name not in manifest.files:
        raise CheckpointError(f"{path} was saved by {manifest.world_size} ranks; it has no file of rank {rank}")
    return Checkpoint(path=path, manifest=manifest, tensors=_tensors(path / name, manifest.files[name]))


def read_every_file(path: Path) -> list[Checkpoint]:
    """Return the checkpoint at `path` once per file, in the order of ranks. Raise as `read_checkpoint`."""
    first = read_checkpoint(path)
    other_files = sorted(first.manifest.files.items())[1:]
    return [first, *(replace(first, tensors=_tensors(path / name, entry)) for name, entry in other_files)]


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of the checkpoint at `path`, without reading other files.

    Raise `CheckpointError` if the manifest is invalid, or belongs to a directory of another name.
    """
    manifest = parse_manifest(path)
    name = checkpoint_name(manifest.run_id, manifest.step)
    if path.resolve().name != name:
        raise CheckpointError(f"{path / MANIFEST} belongs to {name}; give the directory its old name again")
    return manifest


def check_files(path: Path, manifest: Manifest) -> None:
    """Raise `CheckpointError` unless `path` has exactly the files of the manifest, unchanged."""
    files = [rank_file(rank) for rank in range(len(manifest.files))]
    if len(files) not in (1, manifest.world_size) or files != sorted(manifest.files):
        raise CheckpointError(f"{path / MANIFEST} has the files {sorted(manifest.files)}; expected one for each rank")
    try:
        existing = {entry.name for entry in path.iterdir()} - {MANIFEST}
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    if differences := existing.symmetric_difference(files):
        name = min(differences)
        raise CheckpointError(f"{path / name} is {'missing' if name in files else 'not of this checkpoint'}")
    for name in files:
        _check_file(path / name, manifest.files[name])


def _tensors(path: Path, entry: FileEntry) -> dict[str, Tensor]:
    """Return the tensors of a file by name. Raise `CheckpointError` if the file was changed."""
    # Compare and parse the same bytes, so that a change of the file in between has no effect.
    with _reading(path):
        content = path.read_bytes()
    _check(path, entry, len(content), hashlib.sha256(content).hexdigest())
    try:
        return load(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} is not a safetensors file: {error}") from error


def _check_file(path: Path, entry: FileEntry) -> None:
    """Raise `CheckpointError` if a file was changed. The file is read in pieces, so it need not fit into memory."""
    with _reading(path):
        size, digest = path.stat().st_size, file_digest(path)
    _check(path, entry, size, digest)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise `CheckpointError` if the path is not a file; convert an `OSError` of the block into a `CheckpointError`."""
    try:
        if not path.is_file():
            raise CheckpointError(f"{path} is not a file")
        yield
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error


def _check(path: Path, entry: FileEntry, size: int, digest: str) -> None:
    """Raise `CheckpointError` if the size or the digest differs from the entry."""
    if size != entry.size:
        raise CheckpointError(f"{path} has {size} bytes; {entry.size} were written")
    if digest != entry.sha256:
        raise CheckpointError(f"{path} has the SHA-256 {digest}; {entry.sha256} was written")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointEntry:
    """A directory with the name of a checkpoint.

    Attributes:
        path: The directory.
        run_id: The run.
        step: The step.
        saved_at: The modification time of the manifest, in seconds since 1970; None without a manifest.
        size: The number of bytes of all files.
        fault: The reason why a run cannot resume from the checkpoint; None for an undamaged checkpoint.
        best: The best step according to the manifest; None if the manifest has none or is invalid.
    """

    path: Path
    run_id: str
    step: int
    saved_at: float | None
    size: int
    fault: str | None
    best: Best | None


def verify_checkpoints(directory: Path) -> list[CheckpointEntry]:
    """Return the checkpoints of every run in `directory`, by run and step, after a check of all files.

    A directory without a manifest is listed, with the missing manifest as its fault. Links, and checkpoints that a run
    removes during the check, are left out. Raise `CheckpointError` if `directory` cannot be read.
    """
    try:
        directories = [entry for entry in directory.iterdir() if entry.is_dir() and not entry.is_symlink()]
    except OSError as error:
        raise CheckpointError(f"cannot read {directory}: {error.strerror}") from error
    entries = []
    for path in directories:
        name = parse_name(path.name)
        if name is not None:
            with suppress(FileNotFoundError):  # a run removes old checkpoints meanwhile
                entries.append(_verify(path, *name))
    return sorted(entries, key=lambda entry: (entry.run_id, entry.step))


def _verify(path: Path, run_id: str, step: int) -> CheckpointEntry:
    """Return the entry of a directory, after a check of all its files."""
    manifest, fault = None, None
    try:
        manifest = read_manifest(path)
        check_files(path, manifest)
    except CheckpointError as error:
        fault = str(error)
    return CheckpointEntry(
        path=path,
        run_id=run_id,
        step=step,
        saved_at=(path / MANIFEST).stat().st_mtime if (path / MANIFEST).is_file() else None,
        size=sum(entry.stat().st_size for entry in path.iterdir() if entry.is_file()),
        fault=fault,
        best=None if manifest is None else manifest.best,
    )


class Disk:
    """The file operations of a save. Subclasses in tests record the operations or let them fail."""

    def write(self, path: Path, content: bytes) -> None:
        """Write a new file."""
        path.write_bytes(content)

    def sync(self, path: Path) -> None:
        """Wait until a file, or the names in a directory, are on the disk."""
        sync(path)

    def rename(self, old: Path, new: Path) -> None:
        """Rename a directory."""
        old.rename(new)

    def free(self, directory: Path) -> int:
        """Return the bytes that can be written below a directory."""
        return shutil.disk_usage(directory).free


DISK = Disk()
OTHER_BYTES = 2**16
"""An upper estimate of the bytes of the manifest and of a header without tensors."""


def save_checkpoint(
    directory: Path,
    manifest: Manifest,
    tensors: Mapping[str, Tensor],
    *,
    keep: int = 0,
    disk: Disk = DISK,
    others: Callable[[Path], Mapping[str, FileEntry]] = lambda partial: {},
) -> Path:
    """Save a checkpoint of one process in `directory`, remove old checkpoints, and return the path.

    1. Write the files to a temporary directory, sync them, and read them back.
    2. Rename the directory. Even if the process is killed, the checkpoint is complete or absent.
    3. Update the links `{run_id}-latest` and `{run_id}-best`, if the file system has links.
    4. Remove all checkpoints except the last `keep` and the best one.

    Args:
        directory: The directory of all checkpoints.
        manifest: The manifest, without `files` and `sha256`.
        tensors: The tensors by name, on any device, in any layout.
        keep: The number of checkpoints to keep; 0 keeps all.
        disk: The file operations.
        others: A function that is called with the temporary directory, and returns the entries of the files that other
            ranks have written there, by name.

    Raises:
        CheckpointError: If the step is not later than every saved step.
        OutputError: If a file cannot be written, or the disk has too little space for the tensors. The message says
            whether the newest checkpoint is undamaged.
    """
    earlier = saved_steps(directory, manifest.run_id)
    check_follows(earlier, manifest.step)
    path = directory / checkpoint_name(manifest.run_id, manifest.step)
    with _name_failures(path, [directory / checkpoint_name(manifest.run_id, step) for step in earlier]):
        with _partial(path) as partial:
            _check_space(partial, tensors, disk)
            entry = write_tensors(partial / rank_file(0), tensors, disk)
            # All ranks have written their files when `others` returns, so the manifest is the last file.
            files = {rank_file(0): entry, **others(partial)}
            _publish(partial, path, manifest.model_copy(update={"files": files}), disk)
        best = None if manifest.best is None else manifest.best.step
        link_checkpoints(directory, manifest.run_id, latest=manifest.step, best=best)
        _rotate(directory, manifest.run_id, best, keep)
    return path


@contextmanager
def _name_failures(path: Path, earlier: Sequence[Path]) -> Iterator[None]:
    """Convert errors of this block into an `OutputError` with the path and the newest checkpoint."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        newest = _newest([*earlier, path])
        raise OutputError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}; {newest}") from error


def _newest(paths: Sequence[Path]) -> str:
    """Return a text with the name of the newest existing checkpoint, and whether it is damaged."""
    existing = [path for path in paths if path.exists()]
    if not existing:
        return "no other checkpoint exists"
    try:
        check_files(existing[-1], read_manifest(existing[-1]))
    except CheckpointError as error:
        return f"the newest checkpoint is damaged: {error}"
    return f"the newest checkpoint, {existing[-1].name}, is undamaged"


def checkpoint_bytes(tensors: Iterable[Tensor]) -> int:
    """Return an upper estimate of the bytes of a checkpoint with these tensors, including 1 KiB of header a tensor."""
    return OTHER_BYTES + sum(tensor.numel() * tensor.element_size() + 2**10 for tensor in tensors)


def _check_space(directory: Path, tensors: Mapping[str, Tensor], disk: Disk) -> None:
    """Raise `OutputError` if the disk has too little space for the tensors and the manifest."""
    needed, free = checkpoint_bytes(tensors.values()), disk.free(directory)
    if free < needed:
        raise OutputError(f"{free:,} bytes are free, the checkpoint needs {needed:,}")


@contextmanager
def _partial(path: Path) -> Iterator[Path]:
    """Create an empty directory beside `path`; at the end of the context, remove it if it was not renamed."""
    partial = partial_path(path)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], disk: Disk) -> FileEntry:
    """Write a file of tensors and return its manifest entry. Raise `OSError` or `SafetensorError`."""
    # Copies, because safetensors refuses tensors that share memory, such as tied weights.
    content = save({name: tensor.to("cpu", copy=True).contiguous() for name, tensor in tensors.items()})
    disk.write(path, content)
    disk.sync(path)
    return FileEntry(size=len(content), sha256=hashlib.sha256(content).hexdigest())


def _publish(partial: Path, path: Path, manifest: Manifest, disk: Disk) -> None:
    """Write the manifest into the directory `partial`, check all files, and rename the directory to `path`."""
    # Names and contents must be on the disk before the rename, so that a crash leaves no incomplete checkpoint.
    text = json.dumps(seal(manifest).model_dump(), indent="  ", allow_nan=False) + "\n"
    disk.write(partial / MANIFEST, text.encode())
    disk.sync(partial / MANIFEST)
    disk.sync(partial)
    try:
        check_files(partial, parse_manifest(partial))
    except CheckpointError as error:
        raise OutputError(f"the checkpoint read back differs from the written one: {error}") from error
    disk.rename(partial, path)
    disk.sync(path.parent)


def _rotate(directory: Path, run_id: str, best: int | None, keep: int) -> None:
    """Remove all checkpoints except the last `keep` and the best one."""
    for step in steps_to_remove(saved_steps(directory, run_id), keep=keep, best=best):
        path = directory / checkpoint_name(run_id, step)
        removed = partial_path(path)
        path.rename(removed)  # so that a partly removed directory does not have the name of a checkpoint
        shutil.rmtree(removed)


def sweep(directory: Path) -> None:
    """Remove partial files of killed writers in `directory`. The caller holds a lock: no other run writes there."""
    with suppress(FileNotFoundError):
        for entry in directory.iterdir():
            if not is_partial(entry):
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)


class SavingRanks(Protocol):
    """The ranks that save together; `ranks.coordination.Ranks` documents the methods."""

    rank: int

    def run_on_all(self, work: Callable[[], Result]) -> Result: ...

    def all_gather_json(self, value: object) -> list[Any]: ...


def save_shards(
    ranks: SavingRanks, directory: Path, manifest: Manifest, tensors: Mapping[str, Tensor], *, keep: int
) -> Path | None:
    """Save a checkpoint with one file per rank, as `save_checkpoint` does. Return its path on rank 0, else None.

    All ranks call this function with their shards. If a rank fails, no checkpoint is saved. The failed rank raises its
    error; the other ranks raise `RankError` with the message of this error, at the latest at their next collective
    operation with rank 0.
    """

    # Three collective operations, in this order on all ranks, exchange the temporary directory of rank 0, then whether
    # every rank could write, then the entries of the manifest. Rank 0 calls the operations within `save_checkpoint`,
    # after it has written its file.
    def others(partial: Path) -> Mapping[str, FileEntry]:
        ranks.all_gather_json(str(partial))
        ranks.run_on_all(lambda: None)
        entries = ranks.all_gather_json(None)
        return {rank_file(rank): FileEntry.model_validate(entry) for rank, entry in enumerate(entries) if rank}

    if ranks.rank == 0:
        return save_checkpoint(directory, manifest, tensors, keep=keep, others=others)
    partial = Path(ranks.all_gather_json(None)[0])
    path = partial / rank_file(ranks.rank)
    ranks.all_gather_json(ranks.run_on_all(lambda: write_tensors(path, tensors, DISK)).model_dump())
    return None


def rewind(directory: Path, run_id: str, start: int | None, *, disk: Disk = DISK) -> Path | None:
    """Move the checkpoints later than `start` into a new directory `{run_id}-rewound-K`, and return the directory.

    Move all checkpoints if `start` is None. Return None if there is nothing to move. Checkpoints keep their names, so a
    run can still resume from a moved checkpoint by its path. Checkpoints are moved one by one, the newest first: if a
    rewind is killed, no checkpoint is damaged, and the next rewind moves the rest. Raise `OutputError` if a checkpoint
    cannot be moved.
    """
    moved = steps_to_set_aside(saved_steps(directory, run_id), start)
    if not moved:
        return None
    paths = (directory / f"{run_id}-rewound-{k}" for k in count(1))
    target = next(path for path in paths if not path.exists())
    try:
        target.mkdir()
        for step in moved:
            name = checkpoint_name(run_id, step)
            disk.rename(directory / name, target / name)
        disk.sync(target)
        disk.sync(directory)
    except OSError as error:
        raise OutputError(f"cannot move checkpoints from {directory} to {target}: {error.strerror}") from error
    latest = max(saved_steps(directory, run_id), default=None)
    link_checkpoints(directory, run_id, latest=latest, best=_best(directory, run_id))
    return target


def _best(directory: Path, run_id: str) -> int | None:
    """Return the best step according to the latest checkpoint; None if the best step has no valid checkpoint."""
    try:
        return read_manifest(find_checkpoint(directory, run_id, "best")).step
    except CheckpointError:
        return None
