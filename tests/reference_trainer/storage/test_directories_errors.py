"""Claims of an output directory when system calls fail.

The system calls are patched, because tests may run as a user with every permission.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from falsifiers.support.descriptors import held
from falsifiers.support.interruptions import LINES_AT_MOST, at_line, in_child
from reference_trainer.errors import OutputError
from reference_trainer.storage import directories
from tests.reference_trainer.storage.test_directories import NeverMet, claimed

CONTENT = b"a file of another program"


def _failing(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _open_nothing_new(path: Any, flags: int, *others: Any, really: Any = os.open, **more: Any) -> int:
    if flags & os.O_CREAT:
        raise _failing(errno.EROFS)
    return int(really(path, flags, *others, **more))


@contextmanager
def _refused(what: str, path: Path) -> Iterator[None]:
    """Claim the path where directories cannot be made, locked or written."""
    planted = {
        "made": mock.patch.object(os, "mkdir", side_effect=_failing(errno.EACCES)),
        "locked": nullcontext(),
        "written": mock.patch.object(os, "open", _open_nothing_new),
    }
    lock = {"flock": mock.Mock(side_effect=_failing(errno.ENOLCK))} if what == "locked" else {}
    with planted[what], claimed(path, **lock):
        yield


REFUSED = {
    "made": f"cannot create {{path}}: {os.strerror(errno.EACCES)}",
    "locked": f"cannot lock {{path}}: {os.strerror(errno.ENOLCK)}",
    "written": f"cannot write into {{path}}: {os.strerror(errno.EROFS)}",
}


CASES = [("made", False), *itertools.product(("locked", "written"), (False, True))]


@settings(max_examples=20, deadline=None)
@given(case=st.sampled_from(CASES))
def test_system_errors_are_named(case: tuple[str, bool]) -> None:
    """An `OutputError` with path, the system's cause and advice; no directory or descriptor is left."""
    what, there = case
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "new", "out")
        if there:
            path.mkdir(parents=True)
        before = sorted(Path(directory).rglob("*"))
        try:
            with _refused(what, path):
                said = "granted"
        except OutputError as error:
            said = str(error)
        after, left_open = sorted(Path(directory).rglob("*")), held(path.parent)
    words = REFUSED[what].format(path=path)
    assert words in said and said.endswith("; choose another --out"), (
        f"nothing can be {what}: {said!r}; expected {words!r}"
    )
    assert after == before and left_open == [], f"nothing can be {what}: {after} are left and {left_open} open"


@settings(max_examples=20, deadline=None)
@given(free=st.integers(0, 9), needed=st.integers(0, 9))
def test_free_space_check_is_exact(free: int, needed: int) -> None:
    """A disk with exactly the required bytes is accepted, one with a byte less is refused with both numbers."""
    disk = mock.patch.object(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    with tempfile.TemporaryDirectory() as directory:
        said = "granted"
        try:
            with disk, claimed(Path(directory, "out"), bytes_needed=needed):
                pass
        except OutputError as error:
            said = str(error)
    if needed <= free:
        assert said == "granted", f"{free} bytes are free and {needed} needed: {said}"
    else:
        words = f"has {free} bytes free, the results need {needed}"
        assert words in said, f"{free} bytes are free and {needed} needed: {said!r}; expected {words!r}"


@settings(max_examples=20, deadline=None)
@given(
    number=st.sampled_from([errno.ENOENT, errno.ENOTEMPTY, errno.EBUSY, errno.EROFS, errno.EACCES]),
    ended=st.sampled_from(["with nothing", "with a file", "with an exception", "with a refusal"]),
)
def test_failed_directory_removal_is_ignored(number: int, ended: str) -> None:
    """Whatever the cause, the caller sees only the exception that ended the claim."""
    seen: BaseException | None = None
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "out")
        try:
            with (
                mock.patch.object(os, "rmdir", side_effect=_failing(number)),
                claimed(path, bytes_needed=1 << 62 if ended == "with a refusal" else 1),
            ):
                if ended == "with a file":
                    (path / "result").touch()
                if ended == "with an exception":
                    raise ZeroDivisionError
        except Exception as error:
            seen = error
        left_open = held(path)
    kinds = {"with an exception": "ZeroDivisionError", "with a refusal": "OutputError"}
    told, expected = type(seen).__name__ if seen else "no exception", kinds.get(ended, "no exception")
    case = f"where removing fails with {os.strerror(number)!r}, a claim that ended {ended}"
    assert told == expected, f"{case}, raises {seen!r}; expected {expected}"
    assert left_open == [], f"{case}, leaves {left_open} open"


@settings(max_examples=20, deadline=None)
@given(uses=st.lists(st.booleans(), min_size=1, max_size=4))
def test_claim_is_released_when_it_ends(uses: list[bool]) -> None:
    """Also within one process: the descriptor is closed when the claim ends, with or without an exception."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "out")
        for number, fails in enumerate(uses, 1):
            try:
                with claimed(path):
                    if fails:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                pass
            except OutputError as error:
                raise AssertionError(f"claim {number} of {len(uses)}, one after the other: {error}") from error
            assert held(path) == [], f"claim {number} has ended, and the descriptors {held(path)} are open"


def test_file_created_during_claim() -> None:
    """A file is created at the path before each line of a claim: an `OutputError`, or too late to matter.

    The file is kept.
    """
    for moment in range(1, LINES_AT_MOST):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "out")
            said = in_child(lambda to=path, when=moment: _met_by_a_file(to, when))
            if "NeverMet" in said:
                break
            assert said == "done", f"with a file created before line {moment} of a claim: {said}"
            left = path.read_bytes() if path.is_file() else None
            assert left in (CONTENT, None), f"a file created before line {moment} of a claim has the content {left}"


def _met_by_a_file(path: Path, moment: int) -> None:
    came = list[bool]()

    def come() -> None:
        came.append(not path.exists())
        if came[0]:
            path.write_bytes(CONTENT)

    at_line(moment, come, {directories.__file__})
    try:
        with claimed(path):
            assert came != [True] or not path.is_file(), "a file is claimed as a directory"
    except OutputError as error:
        assert came == [True], f"no file was created, and the claim is refused: {error}"
    if not came:
        raise NeverMet
