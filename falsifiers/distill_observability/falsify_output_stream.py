"""Attacks on log lines to a stream that fails, cannot encode a character, or is a terminal.

The subject is that of `falsify_progress_lines`.
"""

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

from falsifiers.distill_observability.falsify_progress_lines import (
    EPOCH,
    EVERY,
    SCHEDULES,
    STEP,
    Stream,
    call_all,
    expected_lines,
)

# Variables that the bar reads: the same terminal on every machine.
XTERM = {"TERM": "xterm", "NO_COLOR": "", "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1"}


# File names: for every encoding below a letter that it has, one that it lacks, and bytes that are not UTF-8.
TEXTS = st.text(st.sampled_from("a é€ш😀\udcff\ud83d\\") | st.characters(exclude_categories=["Cc"]), max_size=20)


class Encoded(io.TextIOWrapper):
    """A text stream on bytes, like standard output: a character that its encoding lacks raises."""

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
        stream.close()  # then even `isatty` raises
    return stream


@given(failure=st.sampled_from(sorted(FAILURES)), after=st.integers(0, 8), terminal=st.booleans())
def falsify_failed_stream_ends_the_lines_only(subject: Any, failure: str, after: int, terminal: bool) -> None:
    """The run continues, nothing more is written, and standard error has one line about it."""
    stream, errors = _stream(failure, after, terminal), io.StringIO()
    with patch.dict(os.environ, XTERM), redirect_stderr(errors), _thread_failures() as failures:
        try:
            call_all(subject, subject.ProgressCallback(1, lines=subject.Lines(stream)), (2, 3), [1.0])
        except (OSError, ValueError, SystemExit) as error:
            raise AssertionError(f"{failure} after {after} writes ended the run: {error!r}") from error
        finally:
            said = errors.getvalue().splitlines()
    failed = stream.closed or stream.raised > 0
    assert not failures, f"{failure} after {after} writes: a thread ended with {failures[0].exc_value!r}"
    assert stream.raised <= 1, f"{failure}: the failed stream was written to {stream.raised - 1} more times"
    assert len(said) == failed and all(str(FAILURES[failure]) in line for line in said), (
        f"{failure} after {after} writes ({'failed' if failed else 'not failed'}): standard error has {said}"
    )


def falsify_missing_streams_do_not_end_the_run(subject: Any) -> None:
    """Without standard output or standard error, or if both fail, the run continues."""
    for out, err in ((None, io.StringIO()), (None, None), (Stream(FAILURES["a full disk"]),) * 2):
        before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = out, err  # as Python does for closed descriptors
        try:
            call_all(subject, subject.ProgressCallback(1), (1, 2), [1.0])
        except Exception as error:
            raise AssertionError(f"standard output {out}, standard error {err}: the run raised {error!r}") from error
        finally:
            sys.stdout, sys.stderr = before


@given(schedule=SCHEDULES, every=EVERY)
def falsify_terminal_shows_the_same_lines(subject: Any, schedule: tuple[int, int], every: int) -> None:
    """Each line is written whole and once above the bar; standard output and error are restored afterwards."""
    stream, before = Stream(terminal=True), (sys.stdout, sys.stderr)
    with patch.dict(os.environ, XTERM):
        call_all(subject, subject.ProgressCallback(every, lines=subject.Lines(stream)), schedule, [2.0])
    seen = [line for line in without_codes(stream) if STEP.fullmatch(line) or EPOCH.fullmatch(line)]
    expected = expected_lines(schedule, [2.0], every)
    assert seen == expected, f"logged every {every} on a terminal: {seen}; expected {expected}"
    assert (sys.stdout, sys.stderr) == before, "the bar left standard output or standard error redirected"


def without_codes(stream: Stream | Encoded) -> list[str]:
    """Return the written lines without control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).replace("\r", "\n").split("\n")


@given(words=st.lists(st.sampled_from(["[bold]", "[/]", ":fire:", "'a'", "0.5", "[1]", "/path", "x" * 90]), min_size=1))
def falsify_terminal_shows_lines_verbatim(subject: Any, words: list[str]) -> None:
    """A line above the bar is not interpreted as markup or emoji, coloured, or wrapped."""
    stream, line = Stream(terminal=True), " ".join(words)
    lines = subject.Lines(stream)
    with patch.dict(os.environ, XTERM):
        lines.open_bar("student", 3)
        lines.write(line)
        lines.close_bar()
    assert f"{line}\n" in stream.getvalue(), f"of {line!r} a terminal shows {without_codes(stream)}"


def _shown(text: str, encoding: str) -> str:
    """Return `text` with Python's escapes of two, four or eight digits for characters that `encoding` lacks."""

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
def falsify_unencodable_characters_are_escaped(subject: Any, texts: list[str], encoding: str, terminal: bool) -> None:
    """Every line is written: characters of the encoding unchanged, others escaped; standard error stays empty."""
    stream, errors = Encoded(encoding, terminal=terminal), io.StringIO()
    with patch.dict(os.environ, XTERM), redirect_stderr(errors):
        lines = subject.Lines(stream)
        lines.open_bar("student", 3)
        for text in texts:
            lines.write(f"wrote {text}")
        lines.close_bar()
    seen = [line for line in without_codes(stream) if line.startswith("wrote ")]
    expected = [f"wrote {_shown(text, encoding)}" for text in texts]
    where = f"{'terminal' if terminal else 'pipe'} of {encoding}"
    assert not errors.getvalue(), f"{texts!a} on a {where}: standard error has {errors.getvalue()!a}"
    assert seen == expected, f"of {texts!a} a {where} shows {seen!a}; expected {expected!a}"
