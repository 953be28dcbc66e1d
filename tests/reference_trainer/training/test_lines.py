"""Log lines to a stream that fails, cannot encode a character, or is a terminal."""

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

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from falsifiers.support.run_lines import EPOCH, STEP, matcher
from reference_trainer.training.callbacks import Context
from reference_trainer.training.lines import Lines
from reference_trainer.training.progress import ProgressCallback

# Variables that the bar reads: the same terminal on every machine.
XTERM = {"TERM": "xterm", "NO_COLOR": "", "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1"}
FAILURES = {
    "a closed pipe": BrokenPipeError(errno.EPIPE, "Broken pipe"),
    "a full disk": OSError(errno.ENOSPC, "No space left on device"),
    "a closed stream": ValueError("I/O operation on closed file"),
}
# File names: for every encoding below a letter that it has, one that it lacks, and bytes that are not UTF-8.
TEXTS = st.text(st.sampled_from("a é€ш😀\udcff\ud83d\\") | st.characters(exclude_categories=["Cc"]), max_size=20)


class Stream(io.StringIO):
    """A stream that raises `error` after `after` writes, and counts how often."""

    def __init__(self, error: Exception | None = None, after: int = 0, *, terminal: bool = False) -> None:
        super().__init__()
        self.error, self.after, self.terminal, self.writes, self.raised = error, after, terminal, 0, 0

    def write(self, text: str) -> int:
        if self.error is not None and self.writes >= self.after:
            self.raised += 1
            raise self.error
        self.writes += 1
        return super().write(text)

    def isatty(self) -> bool:
        return self.terminal


class Encoded(io.TextIOWrapper):
    """A text stream on bytes, like standard output: a character that its encoding lacks raises."""

    def __init__(self, encoding: str, *, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, newline="\n")
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def getvalue(self) -> str:
        return self.buffer.getvalue().decode(self.encoding)


def without_codes(stream: Stream | Encoded) -> list[str]:
    """Return the written lines without control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).replace("\r", "\n").split("\n")


def call_all(callback: ProgressCallback, epochs: int, per_epoch: int) -> None:
    """Call the callback for a whole run at a loss of 2."""
    counts = {"epochs": epochs, "steps_per_epoch": per_epoch, "total_steps": epochs * per_epoch, "tokens": 1}
    numbers = {"loss": 2.0, "learning_rate": 0.1, "best_loss": 2.0, "elapsed_s": 0.0, **counts}
    callback.on_train_begin(Context(step=0, epoch=0, **numbers))
    for step in range(1, epochs * per_epoch + 1):
        now = Context(step=step, epoch=-(-step // per_epoch), **numbers)
        callback.on_step_end(now)
        if step % per_epoch == 0:
            callback.on_epoch_end(now)
    callback.on_train_end(now)


def lines_of(epochs: int, per_epoch: int, every: int) -> list[str]:
    """Return the lines of such a run."""
    lines = []
    for step in range(1, epochs * per_epoch + 1):
        if every and step % every == 0:
            lines.append(STEP.format(step=step, total=epochs * per_epoch, loss=2.0))
        if step % per_epoch == 0:
            lines.append(EPOCH.format(epoch=step // per_epoch, epochs=epochs, loss=2.0, elapsed_s=0.0))
    return lines


@contextmanager
def thread_failures() -> Iterator[list[Any]]:
    failures, before = list[Any](), threading.excepthook
    threading.excepthook = failures.append
    try:
        yield failures
    finally:
        threading.excepthook = before


def failing_stream(failure: str, after: int, terminal: bool) -> Stream:
    stream = Stream(FAILURES[failure], after, terminal=terminal)
    if failure == "a closed stream" and after == 0:
        stream.close()  # then even `isatty` raises
    return stream


@settings(max_examples=20, deadline=None)
@given(failure=st.sampled_from(sorted(FAILURES)), after=st.integers(0, 8), terminal=st.booleans())
@example(failure="a closed stream", after=0, terminal=False)
@example(failure="a closed pipe", after=0, terminal=False)
@example(failure="a full disk", after=1, terminal=True)
def test_failed_stream_ends_the_lines_but_not_the_run(failure: str, after: int, terminal: bool) -> None:
    stream, errors = failing_stream(failure, after, terminal), io.StringIO()
    with patch.dict(os.environ, XTERM), redirect_stderr(errors), thread_failures() as failures:
        call_all(ProgressCallback(1, lines=Lines(stream)), 2, 3)
    said, failed = errors.getvalue().splitlines(), stream.closed or stream.raised > 0
    assert failures == [], "a thread of the bar ended with an exception"
    assert stream.raised <= 1, "the failed stream was written to again"
    assert len(said) == failed, "the failure is reported once, on standard error"
    assert all(str(FAILURES[failure]) in line for line in said)


FULL = Stream(FAILURES["a full disk"])


@pytest.mark.parametrize(("out", "err"), [(None, io.StringIO()), (None, None), (FULL, FULL)])
def test_missing_or_full_standard_streams_do_not_end_the_run(out: Any, err: Any) -> None:
    with patch.object(sys, "stdout", out), patch.object(sys, "stderr", err):  # as Python does for closed descriptors
        call_all(ProgressCallback(1), 1, 2)


@settings(max_examples=10, deadline=None)
@given(epochs=st.integers(1, 3), per_epoch=st.integers(1, 9), every=st.integers(0, 12))
def test_terminal_shows_the_same_lines_and_streams_are_restored(epochs: int, per_epoch: int, every: int) -> None:
    stream, before = Stream(terminal=True), (sys.stdout, sys.stderr)
    with patch.dict(os.environ, XTERM):
        call_all(ProgressCallback(every, lines=Lines(stream)), epochs, per_epoch)
    seen = [line for line in without_codes(stream) if any(matcher(form).match(line) for form in (STEP, EPOCH))]
    assert seen == lines_of(epochs, per_epoch, every)
    assert (sys.stdout, sys.stderr) == before, "the bar left standard output or standard error redirected"


def written(stream: Stream | Encoded, texts: list[str]) -> list[str]:
    """Write the texts to the stream, above a bar if it is a terminal; return what is shown."""
    with patch.dict(os.environ, XTERM):
        lines = Lines(stream)
        lines.open_bar("student", 3)
        for text in texts:
            lines.write(text)
        lines.close_bar()
    return without_codes(stream)


WORDS = ["[bold]", "[/]", ":fire:", "'a'", "0.5", "[1]", "/path", "x" * 90]


@settings(max_examples=10, deadline=None)
@given(words=st.lists(st.sampled_from(WORDS), min_size=1))
@example(words=WORDS)
def test_terminal_shows_lines_without_markup_colour_or_wrapping(words: list[str]) -> None:
    stream, line = Stream(terminal=True), " ".join(words)
    written(stream, [line])
    assert f"{line}\n" in stream.getvalue()


def escaped(text: str, encoding: str) -> str:
    """Return `text` with Python's escapes of two, four or eight digits for characters that `encoding` lacks."""

    def letter(one: str) -> str:
        try:
            return one.encode(encoding).decode(encoding)
        except UnicodeEncodeError:
            code = ord(one)
            return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    return "".join(letter(one) for one in text)


@settings(max_examples=20, deadline=None)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=4),
    encoding=st.sampled_from(["ascii", "latin-1", "cp1252", "utf-8"]),
    terminal=st.booleans(),
)
@example(texts=["a é€ш😀", "\udcff"], encoding="latin-1", terminal=False)
@example(texts=["a é€ш😀", "\udcff"], encoding="cp1252", terminal=True)
def test_characters_that_the_stream_cannot_encode_are_escaped(texts: list[str], encoding: str, terminal: bool) -> None:
    errors = io.StringIO()
    with redirect_stderr(errors):
        shown = written(Encoded(encoding, terminal=terminal), [f"wrote {text}" for text in texts])
    assert [line for line in shown if line.startswith("wrote ")] == [f"wrote {escaped(t, encoding)}" for t in texts]
    assert errors.getvalue() == ""
