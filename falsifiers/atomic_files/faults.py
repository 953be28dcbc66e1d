"""Faulty writes and claims, for mutants that replace a whole function."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

Write = Callable[[Path], object]


def written_in_place(path: Path, write: Write, **rest: Any) -> None:
    """Write the file under its final name."""
    write(path)


def copied_into_place(path: Path, write: Write, *, fsync: Callable[[int], None] = os.fsync) -> None:
    """Copy a temporary file over the old one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        shutil.copyfile(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def never_synced(original: Any, path: Path, write: Write, **rest: Any) -> None:
    """Rename the file before its bytes are on the disk."""
    original(path, write, fsync=lambda descriptor: None)


def failed_sync_ignored(original: Any, path: Path, write: Write, *, fsync: Callable[[int], None] = os.fsync) -> None:
    """Ignore every error of a sync."""

    def ignoring(descriptor: int) -> None:
        with suppress(OSError):
            fsync(descriptor)

    original(path, write, fsync=ignoring)


def unused_directory_left(original: Any, path: Path, **rest: Any) -> Any:
    """Keep a directory in which nothing was written."""

    @contextmanager
    def claimed() -> Iterator[Path]:
        with original(path, **rest) as directory:
            yield directory
        path.mkdir(parents=True, exist_ok=True)

    return claimed()


def older_directory_removed(original: Any, path: Path, **rest: Any) -> Any:
    """Remove an empty directory that the user created."""

    @contextmanager
    def claimed() -> Iterator[Path]:
        with original(path, **rest) as directory:
            yield directory
        with suppress(OSError):
            path.rmdir()

    return claimed()


def partial_file_refuses_the_next_run(
    original: Any, path: Path, *, force: bool, kept: Collection[str] = (), also: str = ""
) -> None:
    """Take a partial file of a killed run for a result."""
    from reference_trainer.errors import OutputError

    if not force and path.is_dir() and any(each.name not in kept for each in path.iterdir()):
        raise OutputError(f"{path} is not empty")
    original(path, force=force, kept=kept, also=also)


def hidden_files_removed(original: Any, path: Path, **rest: Any) -> Any:
    """Remove every hidden file, as if it were a partial one."""
    for each in path.glob(".*"):
        each.unlink()
    return original(path, **rest)


def results_written_over(original: Any, path: Path, *, force: bool, **rest: Any) -> None:
    """Use a directory with results without --force."""
    original(path, force=True, **rest)


def directory_not_locked(original: Any, path: Path, **rest: Any) -> Any:
    """Use a directory without a lock."""
    return original(path, **rest, flock=lambda descriptor, operation: None)


def checked_before_the_lock_only(original: Any, path: Path, *, force: bool, **rest: Any) -> Any:
    """Look for results before the lock, and not again under it."""
    from reference_trainer.storage.directories import refuse_existing

    refuse_existing(path, force=force)
    return original(path, force=True, **rest)
