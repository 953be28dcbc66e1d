"""Wrong windows, rates, logs and checkpoints of a run. `original` is the replaced function."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from falsifiers.support.faults import scored_tokens


def clipped_before_the_division(original: Any, self: Any, position: Any, rate: float, hooks: Any) -> Any:
    if self.options.clip is None:
        return original(self, position, rate, hooks)
    from reference_trainer.plan.schedule import micro_batches

    numbers = micro_batches(self.schedule, position.epoch_step)
    tokens = sum(scored_tokens(self.batch_at(position.epoch, k)) for k in numbers)
    options = replace(self.options, clip=self.options.clip / tokens)
    return original(replace(self, options=options), position, rate, hooks)


def without(optimizer: Any, name: str) -> Any:
    """Return the optimizer with a method that does nothing."""
    methods = {"step": optimizer.step, "zero_grad": optimizer.zero_grad, name: lambda **settings: None}
    return SimpleNamespace(param_groups=optimizer.param_groups, **methods)


def partial_window_dropped(original: Any, self: Any, position: Any, rate: float, hooks: Any) -> Any:
    from reference_trainer.plan.schedule import micro_batches

    partial = len(micro_batches(self.schedule, position.epoch_step)) < self.schedule.accumulation
    optimizer = without(self.optimizer, "step") if partial else self.optimizer
    return original(replace(self, optimizer=optimizer), position, rate, hooks)


def gradient_leaks_into_the_next_epoch(original: Any, self: Any, position: Any, rate: float, hooks: Any) -> Any:
    leaks = position.epoch > 1 and position.epoch_step == 1
    optimizer = without(self.optimizer, "zero_grad") if leaks else self.optimizer
    return original(replace(self, optimizer=optimizer), position, rate, hooks)


def partial_window_filled_up(original: Any, schedule: Any, epoch_step: int) -> Any:
    numbers = list(original(schedule, epoch_step))
    return numbers + [1] * (schedule.accumulation - len(numbers))


def rate_of_micro_batches(original: Any, *models: Any, schedule: Any, learning_rate: Any, **named: Any) -> Any:
    def rate(step: int) -> Any:
        return learning_rate(step * schedule.accumulation)

    return original(*models, schedule=schedule, learning_rate=rate, **named)
