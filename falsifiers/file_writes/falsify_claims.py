"""Attacks on claims of an output directory: two at once, directories that cannot be claimed, and failing locks.

The subject is `reference_trainer.storage.directories`, or has its names.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.file_writes.falsify_directories import claimed, refusal
from falsifiers.support.descriptors import held
from falsifiers.support.interruptions import LINES_AT_MOST, at_line
from reference_trainer.errors import OutputError


@given(force=st.booleans(), there=st.booleans())
def falsify_second_claim_is_refused(subject: Any, force: bool, there: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "out")
        if there:
            path.mkdir()
        with claimed(subject, path, force=force):
            said = refusal(subject, path, force=force)
            assert said is not None, "two claims of one directory are granted at the same time"
            assert str(path) in said, f"the second claim is refused without its path: {said}"
        assert held(path) == [], f"the claim has ended, and the descriptors {held(path)} are open"
        said = refusal(subject, path, force=force)
        assert said is None, f"the first claim has ended, and the next one is refused: {said}"


A_RESULT, A_FILE = "another run ends with a result", "a file is created at the path"
MEETINGS = ["another run ends with nothing", A_RESULT, A_FILE]


@given(met=st.sampled_from(MEETINGS))
def falsify_interrupted_claim_is_refused(subject: Any, met: str) -> None:
    """The event happens before each line of a claim: an `OutputError`, or an empty directory at its path.

    It is refused in any case if the other run left a result, or a file is at the path.
    """
    for moment in range(1, LINES_AT_MOST):
        with tempfile.TemporaryDirectory() as name, ExitStack() as other:
            path, happened = Path(name, "out"), list[bool]()
            if met != A_FILE:
                other.enter_context(claimed(subject, path))

            def act(to: Path = path, stack: ExitStack = other, note: list[bool] = happened) -> None:
                note.append(True)
                _happen(met, to, stack)

            seen = _claim(subject, path, lambda when=moment, act=act: at_line(when, act, {subject.__file__}))
            if not happened:
                break
            allowed = ["refused"] if met == A_RESULT or path.is_file() else ["refused", "granted"]
            assert seen in allowed, f"{met} before line {moment} of a claim, which is {seen}; expected {allowed}"


def _happen(met: str, path: Path, other: ExitStack) -> None:
    if met == A_FILE and not path.exists():
        path.write_bytes(b"a file of another program")
    if met == A_RESULT:
        (path / "result").touch()
    other.close()


def _claim(subject: Any, path: Path, begin: Callable[[], None]) -> str:
    """Return "granted", "refused", or how the claim ended otherwise."""
    before = sys.gettrace()
    begin()
    try:
        with claimed(subject, path) as directory:
            sys.settrace(before)
            found = sorted(each.name for each in directory.iterdir()) if directory.is_dir() else "no directory"
            return "granted" if found == [] else f"granted, with {found} at its path"
    except OutputError:
        return "refused"
    except OSError as error:
        return f"ended with {error!r}"
    finally:
        sys.settrace(before)


def _file(path: Path) -> Path:
    path.touch()
    return path


UNFIT: dict[str, Callable[[Path], Path]] = {
    "a file": _file,
    "a path below a file": lambda path: _file(path) / "out",
    "a name that is too long": lambda path: path.with_name("x" * 300),
    "a name that is too long in a new directory": lambda path: path / ("x" * 300),
    "a directory below a name that is too long": lambda path: path / "new" / ("x" * 300) / "out",
    "a file system without directories": lambda path: Path("/proc/out"),
    "a file system without permission": lambda path: Path("/sys/out"),
    "a directory that is not writable": lambda path: Path("/proc/self"),
}


@given(kind=st.sampled_from(sorted(UNFIT)), force=st.booleans())
def falsify_unfit_directories_are_refused(subject: Any, kind: str, force: bool) -> None:
    """An `OutputError` with the path, and no directory is left; without a claim too, where reading is enough."""
    with tempfile.TemporaryDirectory() as name:
        path = UNFIT[kind](Path(name, "place"))
        before = sorted(Path(name).rglob("*"))
        _assert_output_error(kind, path, lambda: _granted(subject, path, force))
        after = sorted(Path(name).rglob("*"))
        assert after == before, f"{kind} is refused, and these are left: {sorted(set(after) ^ set(before))}"
        if kind in ("a file", "a name that is too long") or (path == Path("/proc/self") and not force):
            _assert_output_error(f"{kind}, without a claim,", path, lambda: subject.refuse_existing(path, force=force))


def _granted(subject: Any, path: Path, force: bool) -> None:
    with subject.exclusive_directory(path, force=force, bytes_needed=0):
        pass


def _assert_output_error(what: str, path: Path, call: Callable[[], object]) -> None:
    try:
        call()
    except OSError as error:
        assert isinstance(error, OutputError) and str(path) in str(error), f"{what} is refused with {error!r}"
        another_cause = "permission" in what and os.strerror(errno.ENOENT) in str(error)
        assert not another_cause, f"{what} is refused with {error!r}; expected the cause of the failed creation"
    else:
        raise AssertionError(f"{what} is granted")


@given(free=st.sampled_from([1, 2**62]))
def falsify_full_disk_is_refused(subject: Any, free: int) -> None:
    """A claim that needs more bytes than any disk has is refused, and leaves no directory."""
    with tempfile.TemporaryDirectory() as name:
        path, said = Path(name, "new", "out"), ""
        try:
            with subject.exclusive_directory(path, force=False, bytes_needed=free):
                pass
        except OutputError as error:
            said = str(error)
        left = list(Path(name).iterdir())
    assert bool(said) == (free > 2**60), f"a claim that needs {free:,} bytes: {said or 'granted'}"
    assert left == [], f"a claim that needs {free:,} bytes left {left}"


@given(number=st.sampled_from([errno.ENOLCK, errno.ENOTSUP]), there=st.integers(0, 2))
def falsify_failed_lock_is_refused(subject: Any, number: int, there: int) -> None:
    def fail(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "new", "out")
        for each in (path.parent, path)[:there]:
            each.mkdir()
        before, said = sorted(Path(name).rglob("*")), "granted"
        try:
            with subject.exclusive_directory(path, force=False, bytes_needed=1, flock=fail):
                pass
        except OutputError as error:
            said = str(error)
        after, left_open = sorted(Path(name).rglob("*")), held(path.parent)
    assert str(path) in said and os.strerror(number) in said, f"a lock fails with {os.strerror(number)!r}: {said}"
    assert after == before and left_open == [], f"a lock fails: {after} are left and {left_open} open"
