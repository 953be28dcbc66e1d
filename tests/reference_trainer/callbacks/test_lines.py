"""Log lines to a stream that fails, cannot encode a character, or is a terminal."""

import errno
import io
import os
import re
import sys
import threading
from contextlib import redirect_stderr
from typing import Any
from unittest.mock import patch

import pytest

from falsifiers.support.run_lines import EPOCH, STEP, matcher
from reference_trainer.callbacks.base import Context
from reference_trainer.callbacks.progress import Lines, ProgressCallback

# Variables that the bar reads: the same terminal on every machine.
XTERM = {"TERM": "xterm", "NO_COLOR": "", "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1"}
FULL_DISK = OSError(errno.ENOSPC, "No space left on device")


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


def without_codes(text: str) -> list[str]:
    """Return the written lines without control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n").split("\n")


@pytest.mark.parametrize("after", [0, 1, 4])
@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("error", [BrokenPipeError(errno.EPIPE, "Broken pipe"), ValueError("closed file")])
def test_failed_stream_ends_the_lines_but_not_the_run(error: Exception, terminal: bool, after: int) -> None:
    stream, errors, failures = Stream(error, after, terminal=terminal), io.StringIO(), list[Any]()
    with patch.dict(os.environ, XTERM), redirect_stderr(errors), patch.object(threading, "excepthook", failures.append):
        call_all(ProgressCallback(1, lines=Lines(stream)), 2, 3)
    assert failures == [], "a thread of the bar ended with an exception"
    assert stream.raised == 1, "the failed stream was written to again"
    (message,) = errors.getvalue().splitlines()
    assert str(error) in message


@pytest.mark.parametrize(("out", "err"), [(None, None), (Stream(FULL_DISK), Stream(FULL_DISK))])
def test_missing_or_full_standard_streams_do_not_end_the_run(out: Any, err: Any) -> None:
    with patch.object(sys, "stdout", out), patch.object(sys, "stderr", err):  # as Python does for closed descriptors
        call_all(ProgressCallback(1), 1, 2)


def test_terminal_shows_the_same_lines_and_streams_are_restored() -> None:
    stream, before = Stream(terminal=True), (sys.stdout, sys.stderr)
    with patch.dict(os.environ, XTERM):
        call_all(ProgressCallback(2, lines=Lines(stream)), 2, 3)
    seen = [line for line in without_codes(stream.getvalue()) if any(matcher(x).match(line) for x in (STEP, EPOCH))]
    steps = [STEP.format(step=step, total=6, loss=2.0) for step in (2, 4, 6)]
    epochs = [EPOCH.format(epoch=epoch, epochs=2, loss=2.0, elapsed_s=0.0) for epoch in (1, 2)]
    assert seen == [steps[0], epochs[0], *steps[1:], epochs[1]]
    assert (sys.stdout, sys.stderr) == before, "the bar left standard output or standard error redirected"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"[bold] [/] :fire: 'a' 0.5 [1] /path {'x' * 90}", None),  # no markup, colour or wrapping
        ("a é€😀 \udcff", r"a é\u20ac\U0001f600 \udcff"),
    ],
)
def test_line_above_a_bar_is_shown_as_it_is_but_for_what_the_stream_cannot_encode(text: str, shown: str | None) -> None:
    class Latin(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    stream = Latin(io.BytesIO(), encoding="latin-1", newline="\n")
    with patch.dict(os.environ, XTERM):
        lines = Lines(stream)
        lines.open_bar("student", 3)
        lines.write(text)
        lines.close_bar()
    stream.flush()
    assert (shown or text) in without_codes(stream.buffer.getvalue().decode("latin-1"))
