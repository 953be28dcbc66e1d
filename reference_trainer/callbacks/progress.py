"""Progress of a run: which steps and epochs get a log line, and what it says."""

from __future__ import annotations

import math

from reference_trainer.callbacks.base import Callback, Context
from reference_trainer.callbacks.formats import (
    ATTACHED_LINE,
    EPOCH_LINE,
    FIRST_STEP_LINE,
    STEP_LINE,
    duration,
    evaluation_line,
    metrics_line,
)
from reference_trainer.callbacks.lines import Lines
from reference_trainer.plan.schedule import is_due

__all__ = ["ProgressCallback"]


class ProgressCallback(Callback):
    """Callback that writes a line every `log_every` steps (0: none) and one at the end of each epoch.

    The first step that a run takes is followed by the time that the others will take at its rate. Any other step that
    is not logged costs two comparisons: nothing is formatted, read from a device or written. `title` names the model if
    it is not the student: its step lines carry the title in another format than the student's, and it has no epoch
    lines.
    """

    def __init__(self, log_every: int = 10, *, lines: Lines | None = None, title: str = "") -> None:
        self.log_every = log_every
        self._lines = lines or Lines()
        self._began: tuple[int, float] | None = None
        self._title = title
        self._step_line = f"{title}: step {{step}}/{{total}}, loss {{loss:.4f}}" if title else STEP_LINE

    def attach(self, pipeline: object) -> None:
        """Write the line that says that the callback is attached."""
        self._lines.write(ATTACHED_LINE.format(every=self.log_every))

    def on_train_begin(self, context: Context) -> None:
        self._began = (context.step, context.elapsed_s)

    def on_step_end(self, context: Context) -> None:
        if self._began is not None and context.step > self._began[0]:  # a resumed run ends its saved step first
            self._write_estimate(context, *self._began)
            self._began = None
        if is_due(context.step, self.log_every):
            loss = math.nan if context.loss is None else context.loss
            self._lines.write(self._step_line.format(step=context.step, total=context.total_steps, loss=loss))
            if not self._title:
                self._write(metrics_line(context.metrics))

    def _write_estimate(self, context: Context, steps: int, elapsed_s: float) -> None:
        """Write how long the steps that are left take, if they take as long as those since `steps` and `elapsed_s`."""
        left, seconds = context.total_steps - context.step, (context.elapsed_s - elapsed_s) / (context.step - steps)
        if left:
            line = FIRST_STEP_LINE.format(seconds=seconds, left=left, duration=duration(left * seconds))
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
