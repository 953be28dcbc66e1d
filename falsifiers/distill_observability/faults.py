"""Wrong versions of public functions: the faults that the contract `distill-observability` declares."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any


def default_callback_missing(original: Any, *models: Any, callbacks: Sequence[Any] = (), **options: Any) -> Any:
    rest = [callback for callback in callbacks if type(callback).__name__ != "ProgressCallback"]
    return original(*models, callbacks=rest, **options)


def silent_run(original: Any, self: Any, context: Any) -> None:
    every, self.log_every = self.log_every, 0
    original(self, context)
    self.log_every = every


def first_step_silent(original: Any, self: Any, context: Any) -> None:
    """Write no estimate after the first step."""


def formatted_before_the_gate(original: Any, self: Any, context: Any) -> None:
    _ = f"{context.step}/{context.total_steps}: {context.loss}"
    original(self, context)


def absent_loss_is_zero(original: Any, self: Any, context: Any) -> None:
    original(self, replace(context, loss=context.loss or 0.0))


def epoch_lines_silenced(original: Any, self: Any, context: Any) -> None:
    if self.log_every:
        original(self, context)


def logged_one_step_late(original: Any, step: int, every: int) -> Any:
    return original(step - 1, every)


def absent_metric_is_zero(original: Any, metrics: Any) -> Any:
    names = ("loss", "hard_loss", "soft_loss", "kl_at_1", "student_perplexity", "teacher_perplexity")
    return original({**dict.fromkeys(names, 0.0), **metrics})
