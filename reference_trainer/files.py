"""Files that appear whole or not at all, and a directory that one run has to itself."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from reference_trainer.errors import OutputError

__all__ = ["claimed_directory", "refuse_existing", "write_whole"]


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a temporary file beside `path`, then puts it there in one step. OSError where that fails.

    Killed at any moment, it leaves the old file or the new one; a kill that cannot be caught may leave the temporary
    one, whose name starts with a dot and ends in `.partial`.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        _sync(partial)
        partial.replace(path)
        _sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Waits until it is on the disk; a file system that can't say so is taken at its word."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def refuse_existing(path: Path, *, force: bool) -> None:
    """`OutputError` if `path` is a directory that isn't empty, or not a directory; unless `force`.

    What a killed run left half-written doesn't count.
    """
    try:
        if not path.exists():
            return
        if not path.is_dir():
            raise OutputError(f"{path} is no directory; give another --out")
        if not force and not all(_is_partial(each) for each in path.iterdir()):
            raise OutputError(f"{path} isn't empty; give another --out, or --force to write into it")
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(f"{path} can't be read: {error.strerror}; give another --out") from error


@contextmanager
def claimed_directory(path: Path, *, force: bool, bytes_needed: int) -> Iterator[Path]:
    """`path` as a directory that this process may write into and no other run does, made if need be.

    The claim ends with the process, however that ends. A directory made here in which nothing was put is removed,
    where the system lets it.
    Errors: `OutputError` where something is there already (unless `force`), another run is at work, nothing can be
    written, or fewer than `bytes_needed` bytes are free.
    """
    refuse_existing(path, force=force)
    with ExitStack() as stack:
        try:
            made = _make(path)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise OutputError(f"{path} can't be made: {error.strerror}; give another --out") from error
        stack.callback(os.close, descriptor)
        _lock(descriptor, path, made)
        stack.callback(_remove_if_empty, made)  # not before the lock: an empty directory may be another run's
        _sweep(path)
        refuse_existing(path, force=force)  # another run may have finished between the first look and the lock
        _try_out(path, bytes_needed)
        yield path


def _make(path: Path) -> list[Path]:
    """Makes the directory and its parents, all or none; those that this call made, innermost first."""
    made: list[Path] = []
    missing = [each for each in (path, *path.parents) if not each.exists()]
    try:
        for each in reversed(missing):
            with suppress(FileExistsError):  # another run's by now
                each.mkdir()
                made.insert(0, each)
    except OSError:
        _remove_if_empty(made)
        raise
    return made


def _sweep(path: Path) -> None:
    """Removes what a killed run left half-written; under the lock, no other run is writing."""
    for each in path.iterdir():
        if _is_partial(each):
            with suppress(OSError):  # a place that can't be written is refused in its own words
                each.unlink()


def _is_partial(path: Path) -> bool:
    return re.fullmatch(r"\..+\.\d+\.partial", path.name) is not None


def _lock(descriptor: int, path: Path, made: list[Path]) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OutputError(f"another run is writing into {path}; give another --out") from error
    except OSError as error:
        _remove_if_empty(made)  # who can't lock has no rival that could
        raise OutputError(f"{path} can't be locked: {error.strerror}; give another --out") from error
    _refuse_removed(descriptor, path)


def _refuse_removed(descriptor: int, path: Path) -> None:
    """`OutputError` where what was locked isn't in its place any more: whoever had it removed it on leaving."""
    with suppress(OSError):
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            return
    raise OutputError(f"another run has just removed {path}; start again, or give another --out")


def _try_out(path: Path, bytes_needed: int) -> None:
    """Finds out before the training, not after it, that nothing can be written."""
    probe = path / f".probe.{os.getpid()}.partial"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OutputError(f"nothing can be written into {path}: {error.strerror}; give another --out") from error
    free = shutil.disk_usage(path).free
    if free < bytes_needed:
        raise OutputError(
            f"{path} has {free:,} bytes free, the results need {bytes_needed:,}; make room or give another --out"
        )


def _remove_if_empty(directories: list[Path]) -> None:
    for path in directories:
        with suppress(OSError):  # one that stays does no harm, and must not hide how the run ended
            path.rmdir()
