"""Wrong versions of public functions: the faults that the contract `distill-observability` declares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any


def default_callback_missing(original: Any, *models: Any, callbacks: Sequence[Any] = (), **others: Any) -> Any:
    """Train without the callback that writes log lines."""
    kept = [callback for callback in callbacks if type(callback).__name__ != "ProgressCallback"]
    return original(*models, callbacks=kept, **others)


def silent_run(original: Any, self: Any, context: Any) -> None:
    """Write no line for any step."""
    every, self.log_every = self.log_every, 0
    original(self, context)
    self.log_every = every


def first_step_silent(original: Any, self: Any, context: Any) -> None:
    """Write no estimate after the first step."""


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


def absent_metric_is_zero(original: Any, metrics: Any) -> str:
    """Show metrics that are absent as 0."""
    names = ("loss", "hard_loss", "soft_loss", "kl_at_1", "student_perplexity", "teacher_perplexity")
    return original({**dict.fromkeys(names, 0.0), **metrics})
