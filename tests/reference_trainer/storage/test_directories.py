"""Claims of an output directory: two at once, invalid directories, system calls that fail, and the messages.

The system calls are patched, because tests may run as a user with every permission.
"""

import errno
import fcntl
import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from falsifiers.support.descriptors import held
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


@pytest.mark.parametrize("force", [False, True])
def test_second_claim_is_refused_while_the_first_process_lives(tmp_path: Path, force: bool) -> None:
    path, (reading, writing) = tmp_path / "out", os.pipe()
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
        assert said is not None and "another run" in said and str(path) in said
    finally:
        os.close(reading)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert refusal(path, force=force) is None, "the process with the claim was killed"


def test_exactly_one_concurrent_claim_wins() -> None:
    """A second claim starts before each line of the first: exactly one of the two gets the directory and keeps it."""
    for finishes, there in ((False, False), (True, True)):
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
        assert {first, self.rival} in ({"has it", "refused"}, {"refused", "finished"})
        assert self.path.is_dir(), "the directory was removed meanwhile"
        assert refusal(self.path) is not None, "a third claim is granted"


@pytest.mark.parametrize("third", [False, True])
def test_removed_directory_is_not_claimed(tmp_path: Path, third: bool) -> None:
    """A run removes its directory on exit, between another run's check and lock: the other is refused.

    Its lock is on a directory without a name; a third run may have created and locked a new one.
    """
    with ExitStack() as first, ExitStack() as last:
        path = tmp_path / "new" / "out"
        first.enter_context(claimed(path))

        def locked(*arguments: int) -> None:
            first.close()
            if third:
                last.enter_context(claimed(path))
            fcntl.flock(*arguments)

        with pytest.raises(OutputError, match="start again"), claimed(path, flock=locked):
            pass
        assert path.is_dir() == third


def _full(path: Path) -> Path:
    path.mkdir()
    (path / "model").touch()
    return path


def _beneath_a_file(path: Path) -> Path:
    path.touch()
    return path / "out"


UNFIT: dict[str, tuple[Callable[[Path], Path], dict[str, Any], str]] = {
    "a directory that is not empty": (_full, {}, "is not empty"),
    "a file, forced": (lambda path: _beneath_a_file(path).parent, {"force": True}, "not a directory"),
    "a path below a file": (_beneath_a_file, {}, "cannot create"),
    "a disk without free space": (lambda path: path / "a", {"bytes_needed": 1 << 62}, "bytes free"),
}


@pytest.mark.parametrize("kind", UNFIT)
def test_invalid_directory_is_refused_unchanged(tmp_path: Path, kind: str) -> None:
    make, others, words = UNFIT[kind]
    path = make(tmp_path / "place")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OutputError, match=words), claimed(path, **others):
        pass
    assert sorted(tmp_path.rglob("*")) == before


def _failing(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _open_nothing_new(path: Any, flags: int, *others: Any, really: Any = os.open, **more: Any) -> int:
    if flags & os.O_CREAT:
        raise _failing(errno.EROFS)
    return int(really(path, flags, *others, **more))


@pytest.mark.parametrize(
    ("function", "fails", "says"),
    [
        ("mkdir", mock.Mock(side_effect=_failing(errno.EACCES)), "cannot create {}: Permission denied"),
        ("open", _open_nothing_new, "cannot write into {}: Read-only file system"),
        ("", mock.Mock(side_effect=_failing(errno.ENOLCK)), "cannot lock {}: No locks available"),
    ],
)
def test_error_of_the_system_is_named_and_nothing_is_left(tmp_path: Path, function: str, fails: Any, says: str) -> None:
    path = tmp_path / "new" / "out"
    with ExitStack() as stack, pytest.raises(OutputError, match=says.format(path)):
        if function:
            stack.enter_context(mock.patch.object(os, function, fails))
        stack.enter_context(claimed(path, **({} if function else {"flock": fails})))
    assert list(tmp_path.iterdir()) == [] and held(path.parent) == []
