"""Wrong versions of public functions: the faults that the contract `distill-observability` declares."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any


def default_callback_missing(original: Any, *models: Any, callbacks: Sequence[Any] = (), **others: Any) -> Any:
    """Train without the callback that writes log lines."""
    kept = [callback for callback in callbacks if type(callback).__name__ != "ProgressCallback"]
    return original(*models, callbacks=kept, **others)


def user_callbacks_first(original: Any, *models: Any, callbacks: Sequence[Any] = (), **others: Any) -> Any:
    """Call the callbacks of the user before the line of a step is written."""
    from reference_trainer import ProgressCallback

    late = [each for each in callbacks if isinstance(each, ProgressCallback)]
    return original(*models, callbacks=(*(each for each in callbacks if each not in late), *late), **others)


def zero_interval_is_default(original: Any, self: Any, log_every: int = 10, **others: Any) -> None:
    """Treat an interval of 0 as unset."""
    original(self, log_every or 10, **others)


def title_ignored(original: Any, self: Any, log_every: int = 10, *, lines: Any = None, title: str = "") -> None:
    """Write the lines of a teacher like those of the student."""
    original(self, log_every, lines=lines)


def silent_run(original: Any, self: Any, context: Any) -> None:
    """Write no line for any step."""
    every, self.log_every = self.log_every, 0
    original(self, context)
    self.log_every = every


def first_step_silent(original: Any, self: Any, context: Any) -> None:
    """Write no estimate after the first step."""


def earlier_steps_counted(original: Any, self: Any, context: Any) -> None:
    """Count the time of the runs before this one as that of its first step."""
    original(self, replace(context, elapsed_s=0.0))


def formatted_before_the_gate(original: Any, self: Any, context: Any) -> None:
    """Format a line for every step, and write those that are due."""
    _ = f"{context.step}/{context.total_steps}: {context.loss}"
    original(self, context)


def absent_loss_is_zero(original: Any, self: Any, context: Any) -> None:
    """Show a loss of 0 for a step without scored tokens."""
    original(self, replace(context, loss=context.loss or 0.0))


def epoch_lines_silenced(original: Any, self: Any, context: Any) -> None:
    """Let an interval of 0 disable the lines of epochs too."""
    if self.log_every:
        original(self, context)


def logged_one_step_late(original: Any, step: int, every: int) -> Any:
    """Log the steps 1, k + 1, 2k + 1, ..."""
    return original(step - 1, every)


class Unflushed:
    """A stream without an effective flush."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return (lambda: None) if name == "flush" else getattr(self.stream, name)


def lines_not_flushed(original: Any, self: Any, stream: Any = None) -> None:
    """Leave lines in the buffer of their stream."""
    original(self, Unflushed(stream or sys.stdout))


def pattern_without_nan(original: Any, line: str) -> re.Pattern[str]:
    """Match no line with a loss that is not finite."""
    return re.compile(f"(?!.*(?:nan|inf)){original(line).pattern}")


def absent_metric_is_zero(original: Any, metrics: Any) -> str:
    """Show metrics that are absent as 0."""
    names = ("loss", "hard_loss", "soft_loss", "kl_at_1", "student_perplexity", "teacher_perplexity")
    return original({**dict.fromkeys(names, 0.0), **metrics})


def evaluation_unsorted(step: int, total: int, metrics: Any) -> str:
    """Show the metrics in the order in which they were computed."""
    shown = [f"{name}={each:.4g}" for name, each in metrics.items()]
    return f"Evaluation at step {step}/{total} | {' '.join(shown)}" if shown else ""


def evaluation_not_shown(self: Any, context: Any) -> None:
    """Write nothing."""
