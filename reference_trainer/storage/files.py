"""Write files atomically, compute their digests, and lock directories for one run."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from reference_trainer.errors import OutputError


def atomic_write(path: Path, write: Callable[[Path], object], *, fsync: Callable[[int], None] = os.fsync) -> None:
    """Write a file atomically: call `write` with a temporary path beside `path`, sync it, and rename it to `path`.

    A process that is killed at any moment leaves the old file or the new one; it may leave the temporary file, whose
    name starts with a dot and ends in `.partial`. `fsync` waits until the file or directory of a descriptor is on the
    disk. Raise `OSError`, and the errors of `write`.
    """
    partial = partial_path(path)
    try:
        write(partial)
        sync(partial, fsync)
        partial.replace(path)
        sync(path.parent, fsync)
    finally:
        partial.unlink(missing_ok=True)


def partial_path(path: Path) -> Path:
    """Return the path beside `path` at which this process writes a file or directory before it is renamed to `path`."""
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


def is_partial(path: Path) -> bool:
    """Return whether `path` has the name of a `partial_path`, which a killed process may leave behind."""
    return re.fullmatch(r"\..+\.\d+\.partial", path.name) is not None


def sync(path: Path, fsync: Callable[[int], None] = os.fsync) -> None:
    """Wait until the file or directory is on the disk; do nothing on a file system without sync."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits. Raise `OSError`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_existing(path: Path, *, force: bool, allowed: Collection[str] = (), also: str = "") -> None:
    """Raise `OutputError` if a path exists and is not an empty directory.

    Args:
        path: The path.
        force: Whether the directory may contain any files.
        allowed: Names of files that may exist, such as the files of the run that is resumed.
        also: Text that follows "--force" in the message, about another flag that the user needs too.
    """
    try:
        if not path.exists():
            return
        if not path.is_dir():
            raise OutputError(f"{path} is not a directory; choose another --out")
        names = [] if force else [entry.name for entry in path.iterdir() if not is_partial(entry)]
        if remaining := [name for name in names if name not in allowed]:
            state = "has the files of a complete run" if "manifest.json" in remaining else "is not empty"
            raise OutputError(f"{path} {state}; choose another --out, or use --force{also} to write into it")
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror}; choose another --out") from error


@contextmanager
def exclusive_directory(
    path: Path, *, force: bool, bytes_needed: int, allowed: Collection[str] = (), also: str = ""
) -> Iterator[Path]:
    """Create and lock a directory, so that no other run writes into it.

    The lock ends with the process, also if the process is killed. On exit, directories that were created here and are
    still empty are removed; failure to remove them is ignored.

    Args:
        path: The directory.
        force, allowed, also: As for `refuse_existing`.
        bytes_needed: The number of bytes that must be free.

    Raises:
        OutputError: The directory is not empty, is locked by another run or is not writable, or the disk has too little
            space.
    """
    refuse_existing(path, force=force, allowed=allowed, also=also)
    with ExitStack() as stack:
        try:
            created = _make(path)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise OutputError(f"cannot create {path}: {error.strerror}; choose another --out") from error
        stack.callback(os.close, descriptor)
        _lock(descriptor, path, created)
        # Registered after the lock: without the lock, the empty directory may belong to another run.
        stack.callback(_remove_if_empty, created)
        _remove_partial_files(path)
        # Another run may have finished between the first check and the lock.
        refuse_existing(path, force=force, allowed=allowed, also=also)
        _check_writable(path, bytes_needed)
        yield path


def _make(path: Path) -> list[Path]:
    """Create the directory and its missing parents, all or none. Return the created directories, innermost first."""
    created: list[Path] = []
    missing = [parent for parent in (path, *path.parents) if not parent.exists()]
    try:
        for parent in reversed(missing):
            with suppress(FileExistsError):  # another run has created the directory meanwhile
                parent.mkdir()
                created.insert(0, parent)
    except OSError:
        _remove_if_empty(created)
        raise
    return created


def _remove_partial_files(path: Path) -> None:
    """Remove partial files of a killed run. The caller holds the lock, so no other run is writing."""
    for entry in path.iterdir():
        if is_partial(entry):
            with suppress(OSError):  # a directory that is not writable is reported by `_check_writable`
                entry.unlink()


def _lock(descriptor: int, path: Path, created: list[Path]) -> None:
    """Lock an open directory. Raise `OutputError` if another run has locked it. created: the result of `_make`."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OutputError(f"another run is writing into {path}; choose another --out") from error
    except OSError as error:
        _remove_if_empty(created)  # no run can lock a directory of this file system, so no other run uses these
        raise OutputError(f"cannot lock {path}: {error.strerror}; choose another --out") from error
    _refuse_removed(descriptor, path)


def _refuse_removed(descriptor: int, path: Path) -> None:
    """Raise `OutputError` if the locked directory is no longer at `path`, because another run removed it on exit."""
    with suppress(OSError):
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            return
    raise OutputError(f"another run has just removed {path}; start again, or choose another --out")


def _check_writable(path: Path, bytes_needed: int) -> None:
    """Raise `OutputError` if results cannot be written. Without this check, a run would fail after the training."""
    probe = partial_path(path / "probe")
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OutputError(f"cannot write into {path}: {error.strerror}; choose another --out") from error
    check_room(path, bytes_needed)


def check_room(path: Path, bytes_needed: int) -> None:
    """Raise `OutputError` if the disk of the directory `path` has fewer than `bytes_needed` bytes free."""
    free = shutil.disk_usage(path).free
    if free < bytes_needed:
        raise OutputError(
            f"{path} has {free:,} bytes free, the results need {bytes_needed:,}; free space or choose another --out"
        )


def _remove_if_empty(directories: list[Path]) -> None:
    """Remove the directories that are empty."""
    for path in directories:
        with suppress(OSError):  # a remaining directory is harmless, and must not replace the error of the run
            path.rmdir()
