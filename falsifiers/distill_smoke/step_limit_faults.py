"""Wrong versions of public functions of the trainer, for mutants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any


def one_step_too_few(original: Any, schedule: Any) -> Any:
    """Count the limit from 0."""
    return original(schedule) - (schedule.limit is not None)


def limit_compared_with_the_epoch(original: Any, schedule: Any, position: Any, action: Any) -> Any:
    """Compare the limit with the step within the epoch."""
    after = original(schedule, replace(position, step=position.epoch_step), action)
    return after and replace(after, step=after.step + position.step - position.epoch_step)


def zero_is_a_count(original: Any, schedule: Any) -> None:
    """Accept a plan of zero steps."""
    if 0 not in (schedule.epochs, schedule.steps_per_epoch, schedule.limit):
        original(schedule)
