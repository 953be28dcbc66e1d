"""Wrong windows, rates, logs and checkpoints of a run. `original` is the replaced function."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from falsifiers.kd_step.faults import scored_tokens


class _Clipping:
    """Ranks whose micro-batches each end with a clipping of the gradient so far."""

    def __init__(self, update: Any) -> None:
        self.inner, self.clip = update.parallel, update.clip
        self.parameters = [each for group in update.optimizer.param_groups for each in group["params"]]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        with self.inner.micro_batch(last=last):
            yield
        torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)


def clipped_in_each_micro_batch(original: Any, self: Any, position: Any, rate: float, hooks: Any) -> Any:
    """Clip the accumulated gradient after each micro-batch."""
    if self.clip is None:
        return original(self, position, rate, hooks)
    return original(replace(self, parallel=_Clipping(self)), position, rate, hooks)


def clipped_before_the_division(original: Any, self: Any, position: Any, rate: float, hooks: Any) -> Any:
    """Clip the gradient of the sum, and divide it by the tokens afterwards."""
    if self.clip is None:
        return original(self, position, rate, hooks)
    from reference_trainer.plan.schedule import micro_batches

    numbers = micro_batches(self.schedule, position.epoch_step)
    tokens = sum(scored_tokens(self.batch_at(position.epoch, k)) for k in numbers)
    return original(replace(self, clip=self.clip / tokens), position, rate, hooks)


def _without(optimizer: Any, name: str) -> Any:
    """Return the optimizer with a method that does nothing."""
    methods = {"step": optimizer.step, "zero_grad": optimizer.zero_grad, name: lambda **settings: None}
    return SimpleNamespace(param_groups=optimizer.param_groups, **methods)


def partial_window_dropped(original: Any, self: Any, position: Any, rate: float, hooks: Any) -> Any:
    """Take no optimizer step for a window with fewer micro-batches than usual."""
    from reference_trainer.plan.schedule import micro_batches

    partial = len(micro_batches(self.schedule, position.epoch_step)) < self.schedule.accumulation
    optimizer = _without(self.optimizer, "step") if partial else self.optimizer
    return original(replace(self, optimizer=optimizer), position, rate, hooks)


def gradient_leaks_into_the_next_epoch(original: Any, self: Any, position: Any, rate: float, hooks: Any) -> Any:
    """Begin an epoch with the gradient that the last one left."""
    leaks = position.epoch > 1 and position.epoch_step == 1
    optimizer = _without(self.optimizer, "zero_grad") if leaks else self.optimizer
    return original(replace(self, optimizer=optimizer), position, rate, hooks)


def partial_window_filled_up(original: Any, schedule: Any, epoch_step: int) -> Any:
    """Fill the last window of an epoch with micro-batches from its beginning."""
    numbers = list(original(schedule, epoch_step))
    return numbers + [1] * (schedule.accumulation - len(numbers))


def rate_of_micro_batches(original: Any, *models: Any, schedule: Any, learning_rate: Any, **named: Any) -> Any:
    """Advance the learning rate once for each micro-batch."""

    def rate(step: int) -> Any:
        return learning_rate(step * schedule.accumulation)

    return original(*models, schedule=schedule, learning_rate=rate, **named)


def mean_of_means_over_steps(original: Any, self: Any, sums: Any, sequences: int) -> None:
    """Log the mean of the steps' means."""
    before = dict(self.interval)
    original(self, sums, sequences)
    for name, each in sums.items():
        kept, kind = before.get(name), type(each)
        mean, count = (each.sum / each.count, 1) if each.count else (0.0, 0)
        self.interval[name] = kind(mean + (kept.sum if kept else 0.0), count + (kept.count if kept else 0))
