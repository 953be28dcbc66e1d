"""What a run shows while it goes on: log lines, and on a terminal a progress bar."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO, TypeVar, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from reference_trainer.callbacks import Callback, Context
from reference_trainer.formats import ATTACHED_LINE, EPOCH_LINE, STEP_LINE
from reference_trainer.plan import is_logged

__all__ = ["Lines", "ProgressCallback"]

T = TypeVar("T")


class Lines:
    """Lines on a stream that may fail: a closed pipe or a full disk ends the lines, not the run.

    The loss of the stream is told once on standard error. On a terminal a bar stands below the lines.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = _Stream(stream or sys.stdout)
        self._bar: Progress | None = None

    @property
    def on_a_terminal(self) -> bool:
        return self._stream.isatty()

    def write(self, line: str) -> None:
        if self._bar is not None:
            self._bar.console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)
        else:
            self._stream.write(line + "\n")
            self._stream.flush()

    def open_bar(self, title: str, total: int) -> None:
        """Shows a bar, where somebody can see it."""
        if self.on_a_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                _Reading(),
                TimeRemainingColumn(),
                console=Console(file=cast(TextIO, self._stream)),
                transient=True,
                redirect_stderr=False,  # what goes there is meant for there, the loss of this stream above all
            )
            self._bar.add_task(title, total=total, context=None)
            self._bar.start()

    def move_bar(self, context: Context) -> None:
        """Hands the context over; what is shown of it is formatted when the bar is next drawn, ten times a second."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=context.step, context=context)

    def close_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()


class _Stream:
    """A stream that swallows what is written once it failed: also what a bar draws, in a thread of its own.

    None stands for a standard output that was closed before the start.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        return self._tried(lambda stream: stream.isatty()) is True

    def write(self, text: str) -> None:
        self._tried(lambda stream: self._write(stream, text))

    def flush(self) -> None:
        self._tried(lambda stream: stream.flush())

    def _write(self, stream: TextIO, text: str) -> None:
        """Writes with backslash escapes what the stream can't encode."""
        try:
            stream.write(text)
        except UnicodeEncodeError:
            stream.write(text.encode(self.encoding, "backslashreplace").decode(self.encoding))

    def _tried(self, act: Callable[[TextIO], T]) -> T | None:
        if self._stream is None:
            return None
        try:
            return act(self._stream)
        except (OSError, ValueError) as error:  # ValueError: the stream was closed
            self._stream = None
            with suppress(OSError, ValueError):  # standard error may be lost as well
                # Printed: where the lines went is lost, and this is a word to the person at the terminal, no log entry.
                print(f"standard output is lost ({error}); the run goes on without its lines", file=sys.stderr)  # noqa: T201
        return None


class _Reading(ProgressColumn):
    """Loss and tokens per second; a run in no time counts as one of a nanosecond."""

    def render(self, task: Task) -> Text:
        context: Context | None = task.fields["context"]
        if context is None or context.loss is None:
            return Text("")
        per_s = context.tokens / max(context.elapsed_s, 1e-9)
        return Text(f"loss {context.loss:.4f}  {per_s:,.0f} tokens/s")


class ProgressCallback(Callback):
    """Writes a line every `log_every` steps (0: none) and one at the end of each epoch.

    A step that isn't logged is compared with `log_every`, and that is all: nothing is formatted, read from a device or
    written. `title` names what is trained where that isn't the student: its lines carry the title, and look otherwise
    than the student's.
    """

    def __init__(self, log_every: int = 10, *, lines: Lines | None = None, title: str = "") -> None:
        self.log_every = log_every
        self._lines = lines or Lines()
        self._title = title
        self._step_line = f"{title}: step {{step}}/{{total}}, loss {{loss:.4f}}" if title else STEP_LINE

    def attached(self) -> None:
        """Says that it is there."""
        self._lines.write(ATTACHED_LINE.format(every=self.log_every))

    def on_train_begin(self, context: Context) -> None:
        self._lines.open_bar(self._title or "student", context.total_steps)

    def on_step_end(self, context: Context) -> None:
        self._lines.move_bar(context)
        if is_logged(context.step, self.log_every):
            loss = math.nan if context.loss is None else context.loss
            self._lines.write(self._step_line.format(step=context.step, total=context.total_steps, loss=loss))

    def on_epoch_end(self, context: Context) -> None:
        if not self._title:
            loss = math.nan if context.loss is None else context.loss
            self._lines.write(
                EPOCH_LINE.format(epoch=context.epoch, epochs=context.epochs, loss=loss, elapsed_s=context.elapsed_s)
            )

    def on_train_end(self, context: Context) -> None:
        self._lines.close_bar()
