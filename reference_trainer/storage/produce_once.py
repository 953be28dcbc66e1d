"""A cache of directories. An entry is produced once, by one of several processes, and verified at every read.

An entry is created by one atomic rename, so an entry that exists is complete. Its manifest has the identity and the
SHA-256 of every file, and no path, so that a cache can be moved and shared.

`keep_within` removes the least recently used entries beyond a limit of bytes. A process holds a shared lock on the
manifest of an entry that it uses; the system releases this lock if the process is killed. The modification time of the
manifest is the time of the last use. On a file system without locks nothing is removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from reference_trainer.errors import OutputError, TrainerError
from reference_trainer.storage.files import file_digest, sync

MANIFEST = "manifest.json"


def identity_digest(identity: Mapping[str, object]) -> str:
    """Return the SHA-256, in hexadecimal digits, of JSON values by name."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True, allow_nan=False).encode()).hexdigest()


def produce_once(cache: Path, kind: str, identity: Mapping[str, object], produce: Callable[[Path], object]) -> Path:
    """Return the directory in `cache` with this identity. If there is none, call `produce` to fill it.

    `produce` is called with an empty directory. If several processes need the entry, one produces it and the others
    wait; on a file system without locks, several may produce it. An entry that is damaged, or has another identity, is
    renamed to `NAME.damaged-...` and produced again.
    Raise `OutputError` if the cache cannot be read or written. Errors of `produce` leave no entry, and are raised too:
    an `OSError` as an `OutputError` unless it is a `TrainerError`.
    """
    entry = cache / f"{kind}-{identity_digest(identity)}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _lock_if_supported(cache / f".{entry.name}.lock") as has_lock:
            if not _verify(entry, identity):
                _produce(entry, identity, produce, has_lock=has_lock)
    except TrainerError:  # some are subclasses of OSError
        raise
    except OSError as error:
        raise OutputError(f"cannot use the cache {cache}: {error.strerror or error}") from error
    return entry


@contextmanager
def _lock_if_supported(path: Path) -> Iterator[bool]:
    """Wait for the lock of an entry, hold it, and yield True; if the file system has no locks, yield False."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            yield False
        else:
            yield True


def _verify(entry: Path, identity: Mapping[str, object]) -> bool:
    """Return whether the entry exists and agrees with its manifest; rename a damaged entry."""
    if not entry.exists():
        return False
    try:
        is_equal = bool(json.loads((entry / MANIFEST).read_text(encoding="utf-8")) == _manifest(entry, identity))
    except (OSError, ValueError, RecursionError):
        is_equal = False
    if not is_equal:  # a rename onto a new, empty directory gives a name that no other process has
        entry.rename(tempfile.mkdtemp(dir=entry.parent, prefix=f"{entry.name}.damaged-"))
    return is_equal


def _produce(entry: Path, identity: Mapping[str, object], produce: Callable[[Path], object], *, has_lock: bool) -> None:
    """Produce the entry in a temporary directory, and rename it. has_lock: whether this process holds the lock."""
    unfinished = f".{entry.name}.partial-"
    if has_lock:  # then these directories belong to killed processes
        for leftover in entry.parent.glob(f"{unfinished}*"):
            shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=entry.parent, prefix=unfinished) as place:
        new = Path(place) / "entry"
        new.mkdir()
        produce(new)
        text = json.dumps(_manifest(new, identity), indent="  ") + "\n"
        (new / MANIFEST).write_text(text, encoding="utf-8")
        for path in (*new.iterdir(), new):
            sync(path)
        try:
            new.rename(entry)
        except OSError:
            if not _verify(entry, identity):  # without locks, another process may have produced the entry first
                raise
    sync(entry.parent)


def _manifest(entry: Path, identity: Mapping[str, object]) -> dict[str, object]:
    """Return the manifest that describes the present files of an entry."""
    digests = {path.name: file_digest(path) for path in entry.iterdir() if path.name != MANIFEST}
    return {"identity": json.loads(json.dumps(identity)), "sha256": digests}


@contextmanager
def used_entry(
    cache: Path, kind: str, identity: Mapping[str, object], produce: Callable[[Path], object]
) -> Iterator[Path]:
    """Yield the entry of `produce_once`, locked against removal by `keep_within`. Raise as `produce_once`."""
    # Another process may remove the entry before it is locked here; then produce it again.
    while True:
        entry = produce_once(cache, kind, identity, produce)
        descriptor = _open_shared(entry / MANIFEST)
        if descriptor is not None:
            break
    try:
        with suppress(OSError):  # the file may belong to another user
            os.utime(descriptor)
        yield entry
    finally:
        os.close(descriptor)


def _open_shared(path: Path) -> int | None:
    """Return a descriptor with a shared lock on a file, or None if the file has just been removed."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with suppress(OSError):  # without locks, nothing is removed
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    # The file may have been removed or replaced while this process waited for the lock.
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    os.close(descriptor)
    return None


def keep_within(cache: Path, kind: str, limit: int) -> list[str]:
    """Remove entries of a kind until they have at most `limit` bytes, and partial entries of killed processes.

    Entries in use are kept, and their bytes count. Return a line about the removed entries, and one line for every
    entry that cannot be removed because of an error; only one line if the cache cannot be read or locked.
    """
    lines: list[str] = []
    try:
        with _lock(cache / f".{kind}.lock", wait=True):  # one process counts and removes at a time
            # 1. Remove partial entries, except while a process produces them, which then holds the lock of the entry.
            for path in _directories(cache, rf"\.{kind}-[0-9a-f]{{64}}\.partial-.+"):
                entry_name, _, _ = path.name.partition(".partial-")
                with suppress(BlockingIOError), _lock(cache / f"{entry_name}.lock"):
                    _remove_tree(path, lines)
            # 2. Remove entries, the least recently used first.
            paths = _directories(cache, rf"{kind}-[0-9a-f]{{64}}(\.damaged-.+)?")
            entries = sorted((_last_use(path), path, _size(path)) for path in paths)
            total, removed = sum(size for _, _, size in entries), 0
            for _, path, size in entries:
                if total - removed <= limit:
                    break
                if _remove_unused(path, lines):
                    removed += size
    except OSError as error:
        return [f"cannot limit the cache {cache}: {error.strerror or error}"]
    return [f"removed {removed:,} bytes of the least recently used {kind} from {cache}", *lines] if removed else lines


@contextmanager
def _lock(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the exclusive lock of a file. Raise `BlockingIOError` if another process holds a lock and not `wait`.

    Raise another `OSError` if the file cannot be opened, or the file system has no locks.
    """
    with path.open("r+b" if path.name == MANIFEST else "ab") as file:  # a lock file is created, a manifest exists
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


def _remove_unused(path: Path, lines: list[str]) -> bool:
    """Remove an entry unless a process uses it; return whether it is removed.

    The entry is first renamed to a partial entry, which a later call removes if this process is killed.
    """
    name, _, _ = path.name.partition(".")
    manifest = path / MANIFEST
    try:
        with _lock(path.parent / f".{name}.lock"):  # fails while a process produces or verifies the entry
            with _lock(manifest) if manifest.exists() else nullcontext():  # fails while a process uses the entry
                partial = path.rename(tempfile.mkdtemp(dir=path.parent, prefix=f".{name}.partial-"))
            return _remove_tree(partial, lines)
    except BlockingIOError:
        return False
    except OSError as error:
        lines.append(f"cannot remove {path}: {error.strerror or error}")
        return False


def _remove_tree(path: Path, lines: list[str]) -> bool:
    """Remove a directory; return whether it no longer exists. Append a line if it cannot be removed."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        lines.append(f"cannot remove {path}: {error.strerror or error}")
        return False
    return True


def _directories(cache: Path, pattern: str) -> list[Path]:
    """Return the directories in the cache whose names match, without links."""
    paths = [path for path in cache.iterdir() if re.fullmatch(pattern, path.name)]
    return [path for path in paths if path.is_dir() and not path.is_symlink()]


def _last_use(path: Path) -> int:
    """Return the modification time of the manifest or, without one, of the directory, in nanoseconds since 1970."""
    for candidate in (path / MANIFEST, path):
        with suppress(OSError):
            return candidate.stat().st_mtime_ns
    return 0


def _size(path: Path) -> int:
    """Return the size of all files in a directory, in bytes; less if a file is removed meanwhile."""
    total = 0
    with suppress(OSError):
        for file in path.rglob("*"):
            total += file.lstat().st_size
    return total
