"""A cache of directories that are produced once, however many processes ask, and verified whenever they are read.

An entry is complete: it appears by one rename, with a manifest of what it is of and the SHA-256 of every file. It holds
no path, so a cache can be moved and shared.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reference_trainer.errors import OutputError, TrainerError
from reference_trainer.storage.files import file_digest, sync

__all__ = ["identity_digest", "produce_once"]

MANIFEST = "manifest.json"


def identity_digest(identity: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hexadecimal digits, of JSON values by name; different ones have different digests."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True, allow_nan=False).encode()).hexdigest()


def produce_once(cache: Path, kind: str, identity: Mapping[str, Any], produce: Callable[[Path], object]) -> Path:
    """Return the directory in `cache` with this identity; if there is none, `produce` fills it first.

    `produce` writes files into the empty directory that it is given. Of processes that ask at once, one produces and
    the others wait for it. An entry that is damaged, or of another identity, is set aside as `NAME.damaged-...` and
    produced again. Raise `OutputError` if the cache cannot be written, and the errors of `produce`; no entry is left.
    """
    entry = cache / f"{kind}-{identity_digest(identity)}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f".{entry.name}.lock") as alone:
            if not _is_whole(entry, identity):
                _produce(entry, identity, produce, alone=alone)
    except TrainerError:
        raise
    except OSError as error:
        raise OutputError(f"cannot use the cache {cache}: {error.strerror or error}") from error
    return entry


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Wait for the lock of an entry, which ends with its process; yield whether the file system has locks."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            yield False
        else:
            yield True


def _is_whole(entry: Path, identity: Mapping[str, Any]) -> bool:
    """Return whether the entry is there and has what its manifest says; set a damaged one aside."""
    if not entry.exists():
        return False
    try:
        whole = bool(json.loads((entry / MANIFEST).read_text(encoding="utf-8")) == _manifest(entry, identity))
    except (OSError, ValueError, RecursionError):
        whole = False
    if not whole:
        entry.rename(tempfile.mkdtemp(dir=entry.parent, prefix=f"{entry.name}.damaged-"))
    return whole


def _produce(entry: Path, identity: Mapping[str, Any], produce: Callable[[Path], object], *, alone: bool) -> None:
    unfinished = f".{entry.name}.partial-"
    if alone:  # with the lock held, no other process produces it: these are of processes that were killed
        for left in entry.parent.glob(f"{unfinished}*"):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=entry.parent, prefix=unfinished) as place:
        made = Path(place) / "entry"
        made.mkdir()
        produce(made)
        text = json.dumps(_manifest(made, identity), indent="  ") + "\n"
        (made / MANIFEST).write_text(text, encoding="utf-8")
        for path in (*made.iterdir(), made):
            sync(path)
        try:
            made.rename(entry)
        except OSError:
            if not _is_whole(entry, identity):  # else another process was faster, without locks
                raise
    sync(entry.parent)


def _manifest(entry: Path, identity: Mapping[str, Any]) -> dict[str, Any]:
    digests = {path.name: file_digest(path) for path in entry.iterdir() if path.name != MANIFEST}
    return {"identity": json.loads(json.dumps(identity)), "sha256": digests}
