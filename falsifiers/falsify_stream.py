"""Attacks on the lines of a run whose stream fails or is a terminal. The subject is that of `falsify_progress`."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.falsify_progress import EPOCH, EVERY, SCHEDULES, STEP, Stream, expected_lines, told

# What a bar reads of the environment: the same terminal wherever this runs.
XTERM = {"TERM": "xterm", "NO_COLOR": "", "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1"}


# Names of files: of every encoding below a letter that it has, one that it lacks, and bytes that were no UTF-8.
TEXTS = st.text(st.sampled_from("a é€ш😀\udcff\ud83d\\") | st.characters(exclude_categories=["Cc"]), max_size=20)


class Encoded(io.TextIOWrapper):
    """A stream of bytes, as standard output is one: what its encoding lacks raises."""

    def __init__(self, encoding: str, *, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, newline="\n")
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def getvalue(self) -> str:
        return self.buffer.getvalue().decode(self.encoding)


@contextmanager
def _thread_failures() -> Iterator[list[Any]]:
    failures, before = list[Any](), threading.excepthook
    threading.excepthook = failures.append
    try:
        yield failures
    finally:
        threading.excepthook = before


FAILURES = {
    "a closed pipe": BrokenPipeError(errno.EPIPE, "Broken pipe"),
    "a full disk": OSError(errno.ENOSPC, "No space left on device"),
    "a closed stream": ValueError("I/O operation on closed file"),
}


def _stream(failure: str, after: int, terminal: bool) -> Any:
    stream = Stream(FAILURES[failure], after, terminal=terminal)
    if failure == "a closed stream" and after == 0:
        stream.close()  # then it can't even say whether it is a terminal
    return stream


@given(failure=st.sampled_from(sorted(FAILURES)), after=st.integers(0, 8), terminal=st.booleans())
def falsify_a_lost_stream_ends_the_lines(subject: Any, failure: str, after: int, terminal: bool) -> None:
    """The run goes on, nothing is written any more, and standard error has one line about it."""
    stream, complaints = _stream(failure, after, terminal), io.StringIO()
    with patch.dict(os.environ, XTERM), redirect_stderr(complaints), _thread_failures() as failures:
        try:
            told(subject, subject.ProgressCallback(1, lines=subject.Lines(stream)), (2, 3), [1.0])
        except (OSError, ValueError, SystemExit) as error:
            raise AssertionError(f"{failure} after {after} writes ended the run: {error!r}") from error
        finally:
            said = complaints.getvalue().splitlines()
    lost = stream.closed or stream.raised > 0
    assert not failures, f"{failure} after {after} writes: a thread ended by {failures[0].exc_value!r}"
    assert stream.raised <= 1, f"{failure}: after it was noticed, the stream was written to {stream.raised - 1} times"
    assert len(said) == lost and all(str(FAILURES[failure]) in line for line in said), (
        f"{failure} after {after} writes ({'lost' if lost else 'not lost'}): standard error has {said}"
    )


def falsify_no_stream_at_all(subject: Any) -> None:
    """A process may start without standard output or standard error, or lose both: the run goes on."""
    for out, err in ((None, io.StringIO()), (None, None), (Stream(FAILURES["a full disk"]),) * 2):
        before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = out, err  # as Python does for descriptors that are closed
        try:
            told(subject, subject.ProgressCallback(1), (1, 2), [1.0])
        except Exception as error:
            raise AssertionError(f"standard output {out}, standard error {err}: the run ended by {error!r}") from error
        finally:
            sys.stdout, sys.stderr = before


@given(schedule=SCHEDULES, every=EVERY)
def falsify_a_terminal_gets_the_same_lines(subject: Any, schedule: tuple[int, int], every: int) -> None:
    """Among what draws the bar, every line stands whole and once; standard output and error are then what they were."""
    stream, before = Stream(terminal=True), (sys.stdout, sys.stderr)
    with patch.dict(os.environ, XTERM):
        told(subject, subject.ProgressCallback(every, lines=subject.Lines(stream)), schedule, [2.0])
    seen = [line for line in without_codes(stream) if STEP.fullmatch(line) or EPOCH.fullmatch(line)]
    expected = expected_lines(schedule, [2.0], every)
    assert seen == expected, f"logged every {every} on a terminal: {seen}; expected {expected}"
    assert (sys.stdout, sys.stderr) == before, "the bar left standard output or standard error redirected"


def without_codes(stream: Stream | Encoded) -> list[str]:
    """What was written, in lines, without what moves the cursor or sets a colour."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).replace("\r", "\n").split("\n")


@given(words=st.lists(st.sampled_from(["[bold]", "[/]", ":fire:", "'a'", "0.5", "[1]", "/path", "x" * 90]), min_size=1))
def falsify_a_terminal_gets_lines_as_they_are(subject: Any, words: list[str]) -> None:
    """A line above the bar isn't read as markup, emoji or colour, nor wrapped, whatever a path in it is called."""
    stream, line = Stream(terminal=True), " ".join(words)
    lines = subject.Lines(stream)
    with patch.dict(os.environ, XTERM):
        lines.open_bar("student", 3)
        lines.write(line)
        lines.close_bar()
    assert f"{line}\n" in stream.getvalue(), f"of {line!r} a terminal shows {without_codes(stream)}"


def _shown(text: str, encoding: str) -> str:
    """`text` with Python's escapes, of two, four or eight digits, for what `encoding` lacks."""

    def letter(one: str) -> str:
        try:
            return one.encode(encoding).decode(encoding)
        except UnicodeEncodeError:
            code = ord(one)
            return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    return "".join(letter(one) for one in text)


@given(
    texts=st.lists(TEXTS, min_size=1, max_size=4),
    encoding=st.sampled_from(["ascii", "latin-1", "cp1252", "utf-8"]),
    terminal=st.booleans(),
)
def falsify_what_cannot_be_encoded_is_escaped(subject: Any, texts: list[str], encoding: str, terminal: bool) -> None:
    """Every line arrives, later ones too: characters of the encoding as they are, others escaped, and no complaint."""
    stream, complaints = Encoded(encoding, terminal=terminal), io.StringIO()
    with patch.dict(os.environ, XTERM), redirect_stderr(complaints):
        lines = subject.Lines(stream)
        lines.open_bar("student", 3)
        for text in texts:
            lines.write(f"wrote {text}")
        lines.close_bar()
    seen = [line for line in without_codes(stream) if line.startswith("wrote ")]
    expected = [f"wrote {_shown(text, encoding)}" for text in texts]
    where = f"{'terminal' if terminal else 'pipe'} of {encoding}"
    assert not complaints.getvalue(), f"{texts!a} on a {where}: standard error has {complaints.getvalue()!a}"
    assert seen == expected, f"of {texts!a} a {where} shows {seen!a}; expected {expected!a}"
