"""The plan of a run, in integers: what follows what, which steps are logged, the learning rate of a step.

Nothing here reads a clock, a file or a tensor; the loop asks and carries out. Steps and epochs count from 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum, IntEnum

from reference_trainer.errors import SettingError

__all__ = ["START", "Action", "Event", "Position", "Schedule", "following", "is_logged", "learning_rate"]


FLOOR = 0.1  # what is left of the learning rate at the end


class Event(Enum):
    """What happens in a run, under the name of the hook that hears of it."""

    TRAIN_BEGIN = "on_train_begin"
    EPOCH_BEGIN = "on_epoch_begin"
    STEP_END = "on_step_end"
    EPOCH_END = "on_epoch_end"
    TRAIN_END = "on_train_end"


class Action(IntEnum):
    """What a callback wants next; of several answers the largest counts."""

    CONTINUE = 0
    SKIP = 1
    """Leave out the rest of the epoch."""
    STOP = 2
    """End the run: no further step is taken, and an open epoch is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How long a run is: `epochs` of `steps_per_epoch` optimizer steps, cut off after `limit` steps if there is one.

    All are positive integers; anything else is a `SettingError`.
    """

    epochs: int
    steps_per_epoch: int
    limit: int | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "steps_per_epoch", "limit"):
            value = getattr(self, name)
            optional = name == "limit" and value is None
            if not optional and (type(value) is not int or value < 1):
                raise SettingError(f"{name} is {value!r}; expected a positive integer")

    @property
    def total_steps(self) -> int:
        """Optimizer steps of a run in which no callback skips or stops."""
        planned = self.epochs * self.steps_per_epoch
        return planned if self.limit is None else min(planned, self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """An event of the run, with the steps taken so far: in all, and in the epoch."""

    event: Event
    epoch: int = 0
    step: int = 0
    epoch_step: int = 0
    stopping: bool = False


START = Position(event=Event.TRAIN_BEGIN)


def following(schedule: Schedule, position: Position, action: Action) -> Position | None:
    """What comes after `position`, where the callbacks answered `action`; None after the end.

    STEP_END stands for an optimizer step and all that follows from it. SKIP where no epoch is open changes nothing.
    """
    stopping = position.stopping or action is Action.STOP
    now = replace(position, stopping=stopping)
    match position.event:
        case Event.TRAIN_BEGIN | Event.EPOCH_END:
            ended = stopping or position.epoch == schedule.epochs or position.step >= schedule.total_steps
            if ended:
                return replace(now, event=Event.TRAIN_END)
            return replace(now, event=Event.EPOCH_BEGIN, epoch=position.epoch + 1, epoch_step=0)
        case Event.EPOCH_BEGIN | Event.STEP_END:
            full = position.epoch_step == schedule.steps_per_epoch or position.step >= schedule.total_steps
            if full or action is not Action.CONTINUE:
                return replace(now, event=Event.EPOCH_END)
            return replace(now, event=Event.STEP_END, step=position.step + 1, epoch_step=position.epoch_step + 1)
        case Event.TRAIN_END:
            return None


def is_logged(step: int, every: int) -> bool:
    """Whether `step` is one of each `every` steps; none is when `every` is 0."""
    return every > 0 and step % every == 0


def learning_rate(step: int, *, peak: float, warmup: int, total: int) -> float:
    """Linear from peak / warmup in step 1 to `peak` in step `warmup`, then half a cosine to a tenth in step `total`.

    Source of the cosine: Loshchilov and Hutter 2017, arXiv:1608.03983, equation 5, without restarts.
    """
    if step < warmup:
        return peak * step / warmup
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return peak * (FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * progress)) / 2)
