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


def epoch_left_open(original: Any, schedule: Any, position: Any, action: Any) -> Any:
    """End the run without closing the epoch that the limit cuts off."""
    after = original(schedule, position, action)
    cut_off = after is not None and after.event.name == "EPOCH_END" and after.epoch_step < schedule.steps_per_epoch
    return replace(after, event=type(after.event).TRAIN_END) if cut_off else after


def any_number_is_a_count(original: Any, schedule: Any) -> None:
    """Accept every number from 1 as a number of steps, such as True and 2.5."""
    numbers = (schedule.epochs, schedule.steps_per_epoch, schedule.limit)
    if any(isinstance(number, int | float) and number < 1 for number in numbers):
        original(schedule)


def zero_is_a_count(original: Any, schedule: Any) -> None:
    """Accept a plan of zero steps."""
    if 0 not in (schedule.epochs, schedule.steps_per_epoch, schedule.limit):
        original(schedule)


def max_steps_is_smoke(original: Any, settings: Any, **rest: Any) -> Any:
    """Treat `max_steps` as `smoke`."""
    if settings.max_steps is not None:
        settings = settings.model_copy(update={"smoke": settings.max_steps, "max_steps": None})
    return original(settings, **rest)
