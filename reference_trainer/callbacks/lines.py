"""Writer of a run's log lines, and on a terminal of a progress bar below them."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO, TypeVar, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from reference_trainer.callbacks.base import Callback, Context

__all__ = ["BarCallback", "Lines", "SilentLines"]

T = TypeVar("T")


class Lines:
    """Writer of log lines to a stream that may fail: a closed pipe or a full disk ends the lines, not the run.

    A failed stream is reported once on standard error. On a terminal a progress bar is drawn below the lines.
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

    def open_bar(self, title: str, total: int, unit: str = "byte") -> None:
        """Show a progress bar if the stream is a terminal. unit: of the tokens that are trained on."""
        if self.on_a_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                _LossAndSpeed(),
                TimeRemainingColumn(),
                console=Console(file=cast(TextIO, self._stream)),
                transient=True,
                redirect_stderr=False,  # messages for standard error stay there, the failure of this stream above all
            )
            self._bar.add_task(title, total=total, context=None, unit=unit)
            self._bar.start()

    def update_bar(self, context: Context) -> None:
        """Store the step, and the context of a logged one; they are formatted when the bar is next drawn.

        The bar is drawn by its own thread, which must not read the losses of other steps from the device.
        """
        if self._bar is not None:
            task = self._bar.task_ids[0]
            self._bar.update(task, completed=context.step)
            if context.metrics:
                self._bar.update(task, context=context)

    def close_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()


class SilentLines(Lines):
    """Writer of nothing, for ranks other than 0."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())

    def write(self, line: str) -> None:
        pass


class BarCallback(Callback):
    """Callback that shows how far a training is, as a bar below the lines if they go to a terminal.

    unit: what a token of the data is, "byte" or "token".
    """

    def __init__(self, lines: Lines, title: str, unit: str = "byte") -> None:
        self._lines, self._title, self._unit = lines, title, unit

    def on_train_begin(self, context: Context) -> None:
        self._lines.open_bar(self._title, context.total_steps, self._unit)

    def on_step_end(self, context: Context) -> None:
        self._lines.update_bar(context)

    def on_train_end(self, context: Context) -> None:
        self._lines.close_bar()


class _Stream:
    """Stream that ignores writes after it failed, including those of a bar, which draws in its own thread.

    None stands for a standard output that was closed before the process started.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        return self._attempt(lambda stream: stream.isatty()) is True

    def write(self, text: str) -> None:
        self._attempt(lambda stream: self._write(stream, text))

    def flush(self) -> None:
        self._attempt(lambda stream: stream.flush())

    def _write(self, stream: TextIO, text: str) -> None:
        """Write the text, with backslash escapes for characters that the stream cannot encode."""
        try:
            stream.write(text)
        except UnicodeEncodeError:
            stream.write(text.encode(self.encoding, "backslashreplace").decode(self.encoding))

    def _attempt(self, act: Callable[[TextIO], T]) -> T | None:
        if self._stream is None:
            return None
        try:
            return act(self._stream)
        except (OSError, ValueError) as error:  # ValueError: the stream was closed
            self._stream = None
            with suppress(OSError, ValueError):  # standard error may have failed too
                text = f"standard output failed ({error}); the run continues without log lines"
                print(text, file=sys.stderr)  # noqa: T201  # the stream for log lines has failed
        return None


class _LossAndSpeed(ProgressColumn):
    """Column with loss and tokens or bytes per second; zero elapsed seconds count as one nanosecond."""

    def render(self, task: Task) -> Text:
        context: Context | None = task.fields["context"]
        if context is None or context.loss is None:
            return Text("")
        per_s = context.tokens / max(context.elapsed_s, 1e-9)
        return Text(f"loss {context.loss:.4f}  {per_s:,.0f} {task.fields['unit']}s/s")
