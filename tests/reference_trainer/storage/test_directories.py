"""Claims of an output directory: two at once, invalid directories, and the messages."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from falsifiers.support.interruptions import LINES_AT_MOST, at_line, in_child
from reference_trainer.errors import OutputError
from reference_trainer.storage import directories


class NeverMet(Exception):
    """Raised when a claim ended before the requested line."""


def claimed(path: Path, *, force: bool = False, bytes_needed: int = 1, **others: Any) -> Any:
    return directories.exclusive_directory(path, force=force, bytes_needed=bytes_needed, **others)


def refusal(path: Path, **others: Any) -> str | None:
    """Return the message of a refused claim; None if it is granted."""
    try:
        with claimed(path, **others):
            return None
    except OSError as error:
        return str(error)


@settings(max_examples=16, deadline=None)
@given(force=st.booleans(), there=st.booleans())
def test_second_claim_is_refused(force: bool, there: bool) -> None:
    """Refused while the first process lives, also with --force; granted once it was killed."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "out")
        if there:
            path.mkdir()
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            with claimed(path, force=force):
                os.write(writing, b"claimed")
                time.sleep(60)
            os._exit(0)
        try:
            os.close(writing)
            assert os.read(reading, 7) == b"claimed", "the first claim was not granted"
            said = refusal(path, force=force)
            assert said is not None, "two processes have claimed the same directory"
            assert "another run" in said and str(path) in said, f"the second claim is refused with {said!r}"
        finally:
            os.close(reading)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        said = refusal(path, force=force)
        assert said is None, f"the process with the claim was killed, and the next claim is refused: {said}"


def test_exactly_one_concurrent_claim_wins() -> None:
    """A second claim starts before each line of the first: exactly one of the two gets the directory and keeps it."""
    for finishes, there in itertools.product((False, True), repeat=2):
        for moment in range(1, LINES_AT_MOST):
            with tempfile.TemporaryDirectory() as directory:
                path = Path(directory, "new", "out")
                if there:
                    path.mkdir(parents=True)
                meeting = _Meeting(path, finishes)
                said = in_child(lambda now=meeting, when=moment: now.at(when))
            if "NeverMet" in said:
                break
            assert said == "done", f"with a second claim before line {moment} of the first: {said}"


class _Meeting:
    """Two claims on one directory, the second in the middle of the first."""

    def __init__(self, path: Path, finishes: bool) -> None:
        self.path, self.finishes = path, finishes
        self.stack = ExitStack()
        self.rival = ""

    def at(self, moment: int) -> None:
        at_line(moment, self.claim_too, {directories.__file__})
        first = "refused"
        try:
            with claimed(self.path):
                if self.rival:
                    first = "has it"
                    self.assert_one_has_it(first)
        except OSError:
            self.assert_one_has_it(first)
        if not self.rival:
            raise NeverMet
        if self.rival == "has it":
            assert self.path.is_dir(), "the second claim holds the directory, and the first removed it on exit"

    def claim_too(self) -> None:
        try:
            directory = self.stack.enter_context(claimed(self.path))
            self.rival = "has it"
        except OSError:
            self.rival = "refused"
            return
        if self.finishes:
            (directory / "result").write_text("the rival's")
            self.stack.close()
            self.rival = "finished"

    def assert_one_has_it(self, first: str) -> None:
        pair = {first, self.rival}
        assert pair in ({"has it", "refused"}, {"refused", "finished"}), (
            f"first claim: {first}, second: {self.rival}; expected that exactly one has the directory"
        )
        assert self.path.is_dir(), (
            f"first claim: {first}, second: {self.rival}, and the directory was removed meanwhile"
        )
        said = refusal(self.path)
        assert said is not None, f"first claim: {first}, second: {self.rival}, and a third claim is granted"


def _file(path: Path) -> Path:
    path.touch()
    return path


def _full(path: Path) -> Path:
    path.mkdir()
    (path / "model").touch()
    return path


def _beneath_a_file(path: Path) -> Path:
    path.touch()
    return path / "out"


UNFIT: dict[str, tuple[Callable[[Path], Path], dict[str, Any], str]] = {
    "a directory that is not empty": (_full, {}, "is not empty"),
    "a file": (_file, {}, "not a directory"),
    "a file, forced": (_file, {"force": True}, "not a directory"),
    "a path below a file": (_beneath_a_file, {}, "cannot create"),
    "a name that is too long": (
        lambda path: path.with_name("x" * 300),
        {},
        os.strerror(errno.ENAMETOOLONG),
    ),
    "a name that is too long in a new directory": (lambda path: path / ("x" * 300), {}, "choose another --out"),
    "a disk without free space": (lambda path: path / "a", {"bytes_needed": 1 << 62}, "bytes free"),
    "a file system without directories": (lambda path: Path("/proc/out"), {}, "cannot create"),
}


@settings(max_examples=16, deadline=None)
@given(kind=st.sampled_from(list(UNFIT)))
def test_invalid_directories_are_refused_unchanged(kind: str) -> None:
    """An `OutputError` with the path and advice; the file system is unchanged."""
    make, others, words = UNFIT[kind]
    with tempfile.TemporaryDirectory() as directory:
        path = make(Path(directory, "place"))
        before = sorted(Path(directory).rglob("*"))
        try:
            with claimed(path, **others):
                raise AssertionError(f"{kind} is granted")
        except OSError as error:
            own = isinstance(error, OutputError)
            assert own and words in str(error), f"{kind} is refused with {error!r}; expected the words {words!r}"
        left = sorted(Path(directory).rglob("*"))
        assert left == before, f"{kind} was refused, and these were left: {sorted(set(left) ^ set(before))}"
