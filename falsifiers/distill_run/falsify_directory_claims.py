"""Attacks on exclusive output directories. The subject is `storage.files`, or has its names."""

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

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.interruptions import LINES_AT_MOST, Interrupted, at_line, in_child


def claimed(subject: Any, path: Path, *, force: bool = False, bytes_needed: int = 1) -> Any:
    return subject.exclusive_directory(path, force=force, bytes_needed=bytes_needed)


def refusal(subject: Any, path: Path, **others: Any) -> str | None:
    """Return the message of a rejected claim; None if it is granted."""
    try:
        with claimed(subject, path, **others):
            return None
    except OSError as error:
        return str(error)


@given(names=st.sets(st.sampled_from([".model.safetensors.12.partial", ".config.json.7.partial"]), min_size=1))
def falsify_stale_partial_files_are_removed(subject: Any, names: set[str]) -> None:
    """Partial files are removed without --force; a file with only a similar name is kept and rejects the claim."""
    for other in ("", ".model.partial", "model.12.partial", ".x.12.partial.txt"):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "out")
            path.mkdir()
            for name in [*names, *filter(None, [other])]:
                (path / name).write_bytes(b"half")
            said = refusal(subject, path)
            left = sorted(p.name for p in path.iterdir()) if path.exists() else []
        if other:
            assert said is not None and other in left, (
                f"{other} existed: rejected with {said}; files afterwards: {left}"
            )
        else:
            assert said is None and left == [], (
                f"{sorted(names)} existed: rejected with {said}; files afterwards: {left}"
            )


@given(force=st.booleans(), there=st.booleans())
def falsify_second_claim_is_rejected(subject: Any, force: bool, there: bool) -> None:
    """Rejected while the first process lives, also with --force; granted once it was killed."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "out")
        if there:
            path.mkdir()
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            with claimed(subject, path, force=force):
                os.write(writing, b"claimed")
                time.sleep(60)
            os._exit(0)
        try:
            os.close(writing)
            assert os.read(reading, 7) == b"claimed", "the first claim was not granted"
            said = refusal(subject, path, force=force)
            assert said is not None, "two processes have claimed the same directory"
            assert "another run" in said and str(path) in said, f"the second claim is rejected with {said!r}"
        finally:
            os.close(reading)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        said = refusal(subject, path, force=force)
        assert said is None, f"the process with the claim was killed, and the next claim is rejected: {said}"


def falsify_exactly_one_concurrent_claim_wins(subject: Any) -> None:
    """A second claim starts before each line of the first: exactly one of the two gets the directory and keeps it."""
    for finishes, there in itertools.product((False, True), repeat=2):
        for moment in range(1, LINES_AT_MOST):
            with tempfile.TemporaryDirectory() as directory:
                path = Path(directory, "new", "out")
                if there:
                    path.mkdir(parents=True)
                meeting = _Meeting(subject, path, finishes)
                said = in_child(lambda now=meeting, when=moment: now.at(when))
            if "NeverMet" in said:
                break
            assert said == "done", f"with a second claim before line {moment} of the first: {said}"


class NeverMet(Exception):
    """Raised when the claim ended before the requested line."""


class _Meeting:
    """Two claims on one directory, the second in the middle of the first."""

    def __init__(self, subject: Any, path: Path, finishes: bool) -> None:
        self.subject, self.path, self.finishes = subject, path, finishes
        self.stack = ExitStack()
        self.rival = ""

    def at(self, moment: int) -> None:
        at_line(moment, self.claim_too, [self.subject.__file__])
        first = "refused"
        try:
            with claimed(self.subject, self.path):
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
            directory = self.stack.enter_context(claimed(self.subject, self.path))
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
        said = refusal(self.subject, self.path)
        assert said is not None, f"first claim: {first}, second: {self.rival}, and a third claim is granted"


USES = ["nothing", "a file", "an exception", "a removal"]


@given(levels=st.integers(0, 3), made=st.integers(0, 3), use=st.sampled_from(USES))
def falsify_unused_directories_are_removed(subject: Any, levels: int, made: int, use: str) -> None:
    """Exactly those that the claim created; a directory with a file is kept.

    If the innermost was already removed, its parents are removed.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, *"abc"[:levels], "out")
        there = [*reversed(path.parents), path][len(Path(directory).parents) + 1 :][: min(made, levels + 1)]
        for each in there:
            each.mkdir()
        try:
            with claimed(subject, path) as granted:
                if use == "a file":
                    (granted / "result").touch()
                if use == "a removal":
                    granted.rmdir()
                if use == "an exception":
                    raise Interrupted
        except Interrupted:
            pass
        left = sorted(p for p in Path(directory).rglob("*"))
        chain = [p for p in (path, *path.parents) if p.is_relative_to(directory) and p != Path(directory)]
        kept = [each for each in there if use != "a removal" or each != path]
        expected = sorted([*chain, path / "result"] if use == "a file" else kept)
        assert left == expected, (
            f"with {len(there)} directories there before and {use} put into {path.relative_to(directory)}, "
            f"{[str(p.relative_to(directory)) for p in left]} is left; expected "
            f"{[str(p.relative_to(directory)) for p in expected]}"
        )


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


@given(kind=st.sampled_from(list(UNFIT)))
def falsify_invalid_directories_are_rejected_unchanged(subject: Any, kind: str) -> None:
    """An `OutputError` with the path and advice; the file system is unchanged."""
    make, others, words = UNFIT[kind]
    with tempfile.TemporaryDirectory() as directory:
        path = make(Path(directory, "place"))
        before = sorted(Path(directory).rglob("*"))
        try:
            with claimed(subject, path, **others):
                raise AssertionError(f"{kind} is granted")
        except OSError as error:
            own = isinstance(error, subject.OutputError)
            assert own and words in str(error), f"{kind} is rejected with {error!r}; expected the words {words!r}"
        left = sorted(Path(directory).rglob("*"))
        assert left == before, f"{kind} was rejected, and these were left: {sorted(set(left) ^ set(before))}"


@given(there=st.sampled_from(["model", ".hidden"]))
def falsify_force_accepts_nonempty_directory(subject: Any, there: str) -> None:
    """Its files are unchanged; without --force it is rejected."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, there).write_bytes(b"old")
        said = refusal(subject, Path(directory))
        assert said is not None and "is not empty" in said, f"a directory that holds {there!r}: {said}"
        said = refusal(subject, Path(directory), force=True)
        assert said is None, f"with --force, a directory that holds {there!r} is rejected: {said}"
        left = {p.name: p.read_bytes() for p in Path(directory).iterdir()}
        assert left == {there: b"old"}, f"a forced claim of a directory that holds {there!r} left {left}"
