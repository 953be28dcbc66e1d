"""Atomic writes, digests of files, and paths in JSON files."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

__all__ = ["atomic_write", "file_digest", "path_in_json", "sync"]


def atomic_write(path: Path, write: Callable[[Path], object], *, fsync: Callable[[int], None] = os.fsync) -> None:
    """Write a file atomically: call `write` with a temporary path beside `path`, sync it, and rename it to `path`.

    A process that is killed at any moment leaves the old file or the new one; it may leave the temporary file, whose
    name starts with a dot and ends in `.partial`. `fsync` waits until the file or directory of a descriptor is on the
    disk. Errors: those of `write`, and `OSError`.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        sync(partial, fsync)
        partial.replace(path)
        sync(path.parent, fsync)
    finally:
        partial.unlink(missing_ok=True)


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


def path_in_json(path: Path) -> str:
    """Return the text of a path for a JSON file, with escapes such as \\udcff for bytes that are not UTF-8."""
    return str(path).encode("utf-8", "backslashreplace").decode()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits. Errors: `OSError`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
