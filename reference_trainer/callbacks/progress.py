"""Show the progress of a run: formats of log lines, their writer, and a progress bar on a terminal.

The code that writes the lines and the code that parses them share the formats.
"""

from __future__ import annotations

import io
import math
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from string import Formatter
from typing import TextIO, TypeVar, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from reference_trainer.callbacks.base import Callback, Context
from reference_trainer.distillation.metrics import EVALUATED
from reference_trainer.plan.schedule import is_due

ATTACHED_LINE = "ProgressCallback attached (log every {every} steps; 0 for epoch lines only)"
STEP_LINE = "  Step {step}/{total}: loss: {loss:.4f}"
FIRST_STEP_LINE = "first step in {seconds:.2f}s; the other {left} take about {duration} at this rate"
COMPILED_STEP_LINE = "first step in {seconds:.2f}s, most of it compilation"
NEXT_STEP_LINE = "next step in {seconds:.2f}s; the other {left} take about {duration} at this rate"
EPOCH_LINE = "Epoch {epoch}/{epochs}: loss: {loss:.4f} ({elapsed_s:.1f}s)"
SMOKE_START_LINE = "smoke mode: {steps} steps at most, then the run ends; no model will be written"
SMOKE_OUTPUT_LINE = "smoke mode: a full run would be refused: {error}"
SMOKE_SUMMARY_LINE = (
    "[SMOKE] {steps} steps in {elapsed_s:.2f}s: initial_loss={initial_loss:.4f}, final_loss={final_loss:.4f}, "
    "throughput={throughput:.2f} step/s"
)
SMOKE_PROJECTION_LINE = (
    "[SMOKE] projected full-run wall time ({steps} steps): {hours:.2f}h / {minutes:.1f} min / {seconds:.1f}s"
)
SMOKE_PLANNED_LINE = "smoke mode: the planned run of {steps} steps takes about {seconds:.1f}s at this pace"
SMOKE_END_LINE = "smoke mode: export skipped, no model was written"

LOGGED_METRICS = (
    *("loss", "hard_loss", "soft_loss", "universal_distance", "feature", "kl_at_1"),
    *("student_perplexity", "teacher_perplexity"),
)
"""Metrics of the line of a logged step, in order."""
EVALUATED_METRICS = tuple(
    EVALUATED + name
    for name in ("hard_loss", "soft_loss", "universal_distance", "kl_at_1", "student_perplexity", "agreement")
)
"""The first metrics of the line of an evaluation, in order."""


def duration(seconds: float) -> str:
    """Return a number of seconds as `45 s`, `12 min` or `3.5 h`, depending on its size."""
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def metrics_line(metrics: Mapping[str, float]) -> str:
    """Return the line of a logged step: the metrics of `LOGGED_METRICS` that are present, with four significant digits.

    Return "" if no such metric is present.
    """
    shown = [f"{name}={metrics[name]:.4g}" for name in LOGGED_METRICS if name in metrics]
    return f"Distillation metrics | {' '.join(shown)}" if shown else ""


def evaluation_line(step: int, total: int, metrics: Mapping[str, float]) -> str:
    """Return the line of an evaluated step: the present metrics of `EVALUATED_METRICS`, then the others by name.

    Return "" without metrics.
    """
    # A name that is not in EVALUATED_METRICS gets the index behind them, so such names come last, sorted by name.
    names = sorted(metrics, key=lambda name: ((*EVALUATED_METRICS, name).index(name), name))
    shown = [f"{name}={metrics[name]:.4g}" for name in names]
    return f"Evaluation at step {step}/{total} | {' '.join(shown)}" if shown else ""


def pattern(line: str) -> re.Pattern[str]:
    """Return a pattern for `fullmatch` that matches the lines of a format, with a group for each field.

    A field `{x:.2f}` matches a number with two decimals, `nan` or `inf`; a bare field matches an integer.
    """
    parts = []
    for text, name, spec, _ in Formatter().parse(line):
        parts.append(re.escape(text))
        if name is not None:
            # `spec` is ".2f" for two decimals.
            number = rf"-?\d+\.\d{{{spec[1:-1]}}}|nan|-?inf" if spec else r"\d+"
            parts.append(f"(?P<{name}>{number})")
    return re.compile("".join(parts))


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
        """Whether the stream is a terminal."""
        return self._stream.isatty()

    def write(self, line: str) -> None:
        """Write a line, above the bar if there is one."""
        if self._bar is not None:
            self._bar.console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)
        else:
            self._stream.write(line + "\n")
            self._stream.flush()

    def open_bar(self, title: str, total: int, unit: str = "byte") -> None:
        """Show a progress bar if the stream is a terminal. unit: "byte" or "token", for the speed."""
        if self.on_a_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                _LossAndSpeed(),
                TimeRemainingColumn(),
                console=Console(file=cast(TextIO, self._stream)),
                transient=True,
                redirect_stderr=False,  # standard error must still show a failure of this stream
            )
            self._bar.add_task(title, total=total, context=None, unit=unit)
            self._bar.start()

    def update_bar(self, context: Context) -> None:
        """Store the step, and the context of a logged step, for the next time the bar is drawn.

        The bar is drawn by its own thread, which must not fetch a loss from the device for a step that is not logged.
        """
        if self._bar is not None:
            task = self._bar.task_ids[0]
            self._bar.update(task, completed=context.step)
            if context.metrics:
                self._bar.update(task, context=context)

    def close_bar(self) -> None:
        """Remove the bar, if it was opened."""
        if self._bar is not None:
            self._bar.stop()


class SilentLines(Lines):
    """A `Lines` that writes nothing, for ranks other than 0."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())

    def write(self, line: str) -> None:
        pass


class BarCallback(Callback):
    """Callback that shows the progress of a training as a bar below the lines, if they go to a terminal.

    Args:
        lines: Where lines are written.
        title: The name of the trained model.
        unit: "byte" or "token", for the speed.
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
    """Stream that ignores writes after it failed, including the writes of a bar, which draws in its own thread.

    `stream` is None if standard output was already closed when the process started.
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
        """Return `act(stream)`; None if the stream fails now or has failed before."""
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


class ProgressCallback(Callback):
    """Callback that writes a line every `log_every` steps (0: none) and one at the end of each epoch.

    After an evaluation, its metrics are written. After the first step of a process, an estimate of the remaining time
    is written; with `compiles` after the second.
    Any other step that is not logged costs two comparisons: nothing is formatted, read from a device or written.

    Args:
        log_every: The number of steps between two lines; 0 writes none.
        lines: Where lines are written; by default standard output.
        title: The name of the model if it is not the student; then step lines have another format, with the title, and
            there are neither lines with the metrics of a step nor epoch lines.
        compiles: Whether the first step compiles the models.
    """

    def __init__(
        self, log_every: int = 10, *, lines: Lines | None = None, title: str = "", compiles: bool = False
    ) -> None:
        self.log_every = log_every
        self._lines = lines or Lines()
        # The measured step is the first one, or, if the first one compiles, the next one.
        self._compiles, self._is_next = compiles, False
        # Steps and seconds at the beginning of the measured step; None after its estimate.
        self._began: tuple[int, float] | None = None
        self._title = title
        self._step_line = f"{title}: step {{step}}/{{total}}, loss {{loss:.4f}}" if title else STEP_LINE

    def attach(self, pipeline: object) -> None:
        """Write the line that says that the callback is attached."""
        self._lines.write(ATTACHED_LINE.format(every=self.log_every))

    def on_train_begin(self, context: Context) -> None:
        self._began = (context.step, context.elapsed_s)

    def on_step_end(self, context: Context) -> None:
        # A resumed run first calls `on_step_end` of the saved step again. No step was computed then, so none is timed.
        if self._began is not None and context.step > self._began[0]:
            began, self._began = self._began, None
            self._write_estimate(context, *began)
        if is_due(context.step, self.log_every):
            loss = math.nan if context.loss is None else context.loss
            self._lines.write(self._step_line.format(step=context.step, total=context.total_steps, loss=loss))
            if not self._title:
                self._write(metrics_line(context.metrics))

    def _write_estimate(self, context: Context, start_step: int, start_s: float) -> None:
        """Write the remaining time, estimated from the steps since `start_step`, which ended at `start_s` seconds."""
        left, seconds = context.total_steps - context.step, (context.elapsed_s - start_s) / (context.step - start_step)
        if not left:
            return
        if self._compiles:
            self._began, self._compiles, self._is_next = (context.step, context.elapsed_s), False, True
            line = COMPILED_STEP_LINE.format(seconds=seconds)
        else:
            form = NEXT_STEP_LINE if self._is_next else FIRST_STEP_LINE
            line = form.format(seconds=seconds, left=left, duration=duration(left * seconds))
        self._lines.write(f"{self._title}: {line}" if self._title else line)

    def on_evaluate(self, context: Context) -> None:
        self._write(evaluation_line(context.step, context.total_steps, context.validation_metrics))

    def on_epoch_end(self, context: Context) -> None:
        if not self._title:
            loss = math.nan if context.loss is None else context.loss
            self._lines.write(
                EPOCH_LINE.format(epoch=context.epoch, epochs=context.epochs, loss=loss, elapsed_s=context.elapsed_s)
            )

    def _write(self, line: str) -> None:
        if line:
            self._lines.write(line)
