"""Attacks on atomic writes, and on the files in an output directory before and after a run has it."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.interruptions import LINES_AT_MOST, in_child, kill
from falsifiers.support.oracles import assert_refused
from falsifiers.support.scratch import scratch
from reference_trainer.errors import OutputError

OLD, NEW = b"old" * 1000, b"the new one" * 1000


@contextmanager
def place(old: bytes | None = None) -> Iterator[Path]:
    """A path for a file in a directory of its own, with an old file there or none."""
    with scratch() as directory:
        path = directory / "file"
        if old is not None:
            path.write_bytes(old)
        yield path


def fill(path: Path, content: bytes = NEW) -> None:
    """Write in four pieces, so that an interruption can leave a part of them."""
    with path.open("wb") as file:
        for start in range(0, len(content), len(content) // 4):
            file.write(content[start : start + len(content) // 4])
            file.flush()


def assert_whole(path: Path, when: str) -> None:
    """Assert that the file is the old or the new one, and that only partial files are beside it."""
    seen = path.read_bytes() if path.exists() else None
    assert seen in (OLD, NEW), f"{when}, the file holds {seen and len(seen)} bytes; expected {len(OLD)} or {len(NEW)}"
    odd = [p.name for p in path.parent.iterdir() if p != path and not p.match(".*.partial")]
    assert not odd, f"{when}, other files are in its directory: {odd}"


@given(old=st.sampled_from([None, OLD]), after=st.integers(0, 3))
def falsify_failed_write_keeps_old_file(subject: Any, old: bytes | None, after: int) -> None:
    with place(old) as path:

        def fail(partial: Path) -> None:
            fill(partial, NEW[: after * 100 + 4])
            raise OSError(28, "no space left, on purpose")

        try:
            subject.atomic_write(path, fail)
        except OSError as error:
            assert error.errno == 28, f"the write failed for lack of space, and the caller received {error!r}"
        else:
            raise AssertionError("a write that failed is reported as done")
        seen = {p.name: p.read_bytes() for p in path.parent.iterdir()}
        assert seen == ({} if old is None else {path.name: old}), f"a failed write left {sorted(seen)}"
        subject.atomic_write(path, fill)
        names = [p.name for p in path.parent.iterdir()]
        assert path.read_bytes() == NEW and names == [path.name], f"a write left {names}"


def falsify_write_ended_at_any_line_is_atomic(subject: Any) -> None:
    """Lines of the subject, of what fills the file, and of the copies of the standard library."""
    files = [subject.__file__, __file__, shutil.__file__]
    for moment in range(1, LINES_AT_MOST):
        with place(OLD) as path:
            ended = in_child(partial(subject.atomic_write, path, fill), moment, kill, *files)
            when = f"killed before line {moment} of its run"
            assert_whole(path, when)
            if ended == "done":
                assert path.read_bytes() == NEW, "a write that was not ended left the old file"
                break
            assert ended == "killed", f"{when}, the write ended in another way: {ended}"


@given(old=st.sampled_from([None, OLD]))
def falsify_file_is_synced_before_rename(subject: Any, old: bytes | None) -> None:
    synced: list[tuple[str, bytes | None]] = []

    def watched(descriptor: int) -> None:
        of = Path(f"/proc/self/fd/{descriptor}").resolve()
        whole = of.is_file() and of.read_bytes() == NEW
        kind = "the directory" if of == path.parent.resolve() else "the new file" if whole else "something else"
        synced.append((kind, path.read_bytes() if path.exists() else None))

    with place(old) as path:
        subject.atomic_write(path, fill, fsync=watched)
    expected = [("the new file", old), ("the directory", NEW)]
    assert synced == expected, (
        f"synced were {[(kind, content and len(content)) for kind, content in synced]} (what, and the bytes then in "
        f"place); expected {[(kind, content and len(content)) for kind, content in expected]}"
    )


@given(number=st.sampled_from([errno.EINVAL, errno.EIO]), of=st.sampled_from(["the file", "the directory"]))
def falsify_sync_errors_are_raised(subject: Any, number: int, of: str) -> None:
    """EINVAL is that of a file system without sync."""

    def failing(descriptor: int) -> None:
        directory = Path(f"/proc/self/fd/{descriptor}").resolve().is_dir()
        if of == ("the directory" if directory else "the file"):
            raise OSError(number, os.strerror(number))

    seen = None
    with place(OLD) as path:
        try:
            subject.atomic_write(path, fill, fsync=failing)
        except OSError as error:
            seen = error.errno
        content = path.read_bytes()
    case = f"where syncing {of} fails with {os.strerror(number)!r}"
    expected = number if number == errno.EIO else None
    assert seen == expected, f"{case}, the error number is {seen}; expected {expected}"
    kept = OLD if expected and of == "the file" else NEW
    assert content == kept, f"{case}, the file holds {len(content)} bytes; expected the {len(kept)} ones"


def claimed(subject: Any, path: Path, *, force: bool = False) -> Any:
    return subject.exclusive_directory(path, force=force, bytes_needed=1)


def refusal(subject: Any, path: Path, *, force: bool = False) -> str | None:
    """Return the message of a refused claim; None if it is granted."""
    try:
        with claimed(subject, path, force=force):
            return None
    except OSError as error:
        return str(error)


@given(other=st.sampled_from(["", ".model.partial", ".x.12.partial.txt"]))
def falsify_stale_partial_files_are_removed(subject: Any, other: str) -> None:
    stale = [".config.json.7.partial", ".model.safetensors.12.partial"]
    with scratch() as directory:
        path = directory / "out"
        path.mkdir()
        for name in [*stale, *filter(None, [other])]:
            (path / name).write_bytes(b"half")
        said = refusal(subject, path)
        left = sorted(p.name for p in path.iterdir()) if path.exists() else []
    expected = sorted([*stale, other]) if other else []
    seen = f"{stale} and {other!r} existed: refused with {said}; files afterwards: {left}"
    assert (said is not None) == bool(other) and left == expected, seen


def falsify_force_accepts_nonempty_directory(subject: Any) -> None:
    there = "model"
    with scratch() as directory:
        Path(directory, there).write_bytes(b"old")
        said = refusal(subject, directory)
        assert said is not None, f"a directory that holds {there!r} is accepted without --force"
        said = refusal(subject, directory, force=True)
        assert said is None, f"with --force, a directory that holds {there!r} is refused: {said}"
        left = {p.name: p.read_bytes() for p in directory.iterdir()}
        assert left == {there: b"old"}, f"a forced claim of a directory that holds {there!r} left {left}"


@given(force=st.booleans(), there=st.booleans())
def falsify_second_claim_is_refused(subject: Any, force: bool, there: bool) -> None:
    with scratch() as directory:
        path = directory / "out"
        if there:
            path.mkdir()
        with claimed(subject, path, force=force):
            said = refusal(subject, path, force=force)
            assert said is not None, "two claims of one directory are granted at the same time"
            assert str(path) in said, f"the second claim is refused without its path: {said}"
        said = refusal(subject, path, force=force)
        assert said is None, f"the first claim has ended, and the next one is refused: {said}"


def _file(path: Path) -> Path:
    path.touch()
    return path


UNFIT: dict[str, Callable[[Path], Path]] = {
    "a file": _file,
    "a path below a file": lambda path: _file(path) / "out",
    "a file system without permission": lambda path: Path("/sys/out"),
    "a directory that is not writable": lambda path: Path("/proc/self"),
}


@given(kind=st.sampled_from(sorted(UNFIT)))
def falsify_unfit_directories_are_refused(subject: Any, kind: str) -> None:
    with scratch() as root:
        path = UNFIT[kind](root / "place")
        before = sorted(root.rglob("*"))
        assert_refused(kind, lambda: claimed(subject, path).__enter__(), str(path), kind=OutputError)
        after = sorted(root.rglob("*"))
    assert after == before, f"{kind} is refused, and these are left: {sorted(set(after) ^ set(before))}"
