"""Schedule of a run, as pure functions: the order of events, and the steps that are logged, evaluated and saved.

Nothing here reads a clock, a file or a tensor; the loop executes the schedule. Steps and epochs count from 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntFlag

from reference_trainer.errors import SettingError

UNREAD_STEPS = 256
"""Largest number of steps between two reads of the metric sums on the device. The limit bounds their memory."""


class Event(Enum):
    """Events of a run, in the order of an epoch. The value is the name of the hook."""

    TRAIN_BEGIN = "on_train_begin"
    EPOCH_BEGIN = "on_epoch_begin"
    STEP_BEGIN = "on_step_begin"
    BEFORE_FORWARD = "on_before_forward"
    AFTER_BACKWARD = "on_after_backward"
    PRE_OPTIMIZER_STEP = "on_pre_optimizer_step"
    OPTIMIZER_STEP = "on_optimizer_step"
    LOG = "on_log"
    EVALUATE = "on_evaluate"
    SAVE = "on_save"
    STEP_END = "on_step_end"
    EPOCH_END = "on_epoch_end"
    TRAIN_END = "on_train_end"


class Action(IntFlag):
    """The request that a hook returns, such as `Action.EVALUATE | Action.SAVE`. Requests of several hooks are combined.

    LOG, EVALUATE and SAVE are carried out once: in the present step if the event of the action has not passed yet in
    this step, else in the next step. If there is no next step, LOG and EVALUATE are dropped, and SAVE saves the last
    step at the end of the run.
    """

    CONTINUE = 0
    SKIP = 1
    """Skip the rest of the epoch."""
    STOP = 2
    """End the run: take no further step, and close an open epoch."""
    LOG = 4
    """Log the metrics of the steps since the last logged step."""
    EVALUATE = 8
    """Evaluate the student. As after every evaluation, a checkpoint is saved if the step is the best so far."""
    SAVE = 16
    """Save a checkpoint."""


ENDING = Action.SKIP | Action.STOP
"""Actions that end the epoch or the run: no further step of the epoch is taken after them."""
REQUESTS = Action.LOG | Action.EVALUATE | Action.SAVE
"""Actions that add an event to a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Length of a run: `epochs` of `steps_per_epoch` optimizer steps, ended after `limit` steps if that is not None.

    A step takes `accumulation` micro-batches of every rank. An epoch has `micro_batches` micro-batches, by default
    `accumulation * steps_per_epoch`; the last step of an epoch may take fewer. Every `log_every` steps the run logs,
    every `eval_every` steps it evaluates, every `save_every` steps it saves; 0 means never. If `save_every` is not 0,
    the last step is saved too, so that a run can continue after `limit`, or after an error that follows the training,
    such as a failed export.

    Raise `SettingError` for a number that is neither a positive integer nor an allowed 0 or None, and if
    `micro_batches` micro-batches do not make `steps_per_epoch` steps.
    """

    epochs: int
    steps_per_epoch: int
    limit: int | None = None
    accumulation: int = 1
    micro_batches: int | None = None
    log_every: int = 0
    eval_every: int = 0
    save_every: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "steps_per_epoch", "limit", "accumulation", "micro_batches"):
            value = getattr(self, name)
            optional = name in ("limit", "micro_batches") and value is None
            if not optional and (type(value) is not int or value < 1):
                raise SettingError(f"invalid value {value!r} for {name!r}: expected a positive integer")
        for name in ("log_every", "eval_every", "save_every"):
            interval = getattr(self, name)
            if type(interval) is not int or interval < 0:
                raise SettingError(f"invalid value {interval!r} for {name!r}: expected a non-negative integer")
        if self.micro_batches is not None:
            steps = count_steps(self.micro_batches, self.accumulation)
            if steps != self.steps_per_epoch:
                raise SettingError(
                    f"{self.micro_batches} micro_batches with accumulation {self.accumulation} do not make "
                    f"{self.steps_per_epoch} steps_per_epoch; expected {steps}"
                )

    @property
    def planned_steps(self) -> int:
        """Return the steps of all epochs. Schedules of learning rate and weights use this number and ignore `limit`."""
        return self.epochs * self.steps_per_epoch

    @property
    def total_steps(self) -> int:
        """Return the optimizer steps of a run in which no callback returns SKIP or STOP."""
        return self.planned_steps if self.limit is None else min(self.planned_steps, self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """An event of a run, with the steps taken so far, in the run and in the epoch.

    Attributes:
        event: The event.
        epoch: The epoch, from 1; 0 before the first.
        step: Number of optimizer steps taken in the run.
        epoch_step: Number of optimizer steps taken in the epoch.
        skipping: Whether a callback returned SKIP at an earlier event of this epoch.
        stopping: Whether a callback returned STOP at an earlier event.
        asked: The actions of `REQUESTS` that callbacks returned and that are not carried out yet, including the action
            of the present event.
    """

    event: Event
    epoch: int = 0
    step: int = 0
    epoch_step: int = 0
    skipping: bool = False
    stopping: bool = False
    asked: Action = Action.CONTINUE


START = Position(event=Event.TRAIN_BEGIN)


def next_position(schedule: Schedule, position: Position, action: Action) -> Position | None:
    """Return the position after `position` if its callbacks returned `action`; None after TRAIN_END.

    OPTIMIZER_STEP means: take one optimizer step, call the hooks up to on_pre_optimizer_step within the step, then call
    on_optimizer_step. If SKIP or STOP is returned before OPTIMIZER_STEP, the step is not taken. If it is returned later
    in the step, it takes effect after STEP_END. SKIP outside an epoch has no effect.
    """
    # 1. Add the new actions, and remove the action that the present event has carried out.
    stopping, skipping, asked = position.stopping, position.skipping, position.asked
    if asked or action:  # skip the slow operations on flags: tests follow millions of events
        stopping, skipping = stopping or Action.STOP in action, skipping or Action.SKIP in action
        asked = (asked & ~_REQUEST_OF.get(position.event, Action.CONTINUE)) | (action & REQUESTS)
    # 2. Choose the next event. An epoch begins with a new count of steps and without a SKIP.
    epoch, step, epoch_step = position.epoch, position.step, position.epoch_step
    match position.event:
        case Event.TRAIN_BEGIN | Event.EPOCH_END:
            ends, skipping = stopping or epoch == schedule.epochs or step >= schedule.total_steps, False
            event = Event.TRAIN_END if ends else Event.EPOCH_BEGIN
            epoch, epoch_step = (epoch, epoch_step) if ends else (epoch + 1, 0)
        case Event.EPOCH_BEGIN | Event.STEP_END:
            full = epoch_step == schedule.steps_per_epoch or step >= schedule.total_steps
            event = Event.EPOCH_END if full or stopping or skipping else Event.STEP_BEGIN
        case Event.STEP_BEGIN if stopping or skipping:
            event = Event.EPOCH_END
        case Event.STEP_BEGIN:
            event, step, epoch_step = Event.OPTIMIZER_STEP, step + 1, epoch_step + 1
        case Event.OPTIMIZER_STEP | Event.LOG | Event.EVALUATE | Event.SAVE:
            event = _rest_of_step(schedule, position, asked)
        case Event.TRAIN_END:
            return None
        case inner_event:  # BEFORE_FORWARD, AFTER_BACKWARD, PRE_OPTIMIZER_STEP
            raise ValueError(f"{inner_event.value} is called within a step; it is not a position of a run")
    # Not `dataclasses.replace`, which is slow: it would take half of the time of the tests that follow many events.
    return Position(
        event=event,
        epoch=epoch,
        step=step,
        epoch_step=epoch_step,
        skipping=skipping,
        stopping=stopping,
        asked=asked,
    )


_REQUEST_OF = {Event.LOG: Action.LOG, Event.EVALUATE: Action.EVALUATE, Event.SAVE: Action.SAVE}


def _rest_of_step(schedule: Schedule, position: Position, asked: Action) -> Event:
    """Return the next event of a step whose update is done: the next one that is due or in `asked`, else STEP_END."""
    # The order is LOG, EVALUATE, SAVE. A request for an event that has passed stays in `asked` for the next step.
    event, step = position.event, position.step
    if event is Event.OPTIMIZER_STEP and (is_due(step, schedule.log_every) or Action.LOG in asked):
        return Event.LOG
    if event in (Event.OPTIMIZER_STEP, Event.LOG) and (is_due(step, schedule.eval_every) or Action.EVALUATE in asked):
        return Event.EVALUATE
    if event is Event.EVALUATE:  # at SAVE, the save function decides whether the step is the best so far
        return Event.SAVE
    if event is not Event.SAVE and (is_saved(schedule, step) or Action.SAVE in asked):
        return Event.SAVE
    return Event.STEP_END


def count_steps(micro_batches: int, accumulation: int) -> int:
    """Return the number of optimizer steps of an epoch: micro_batches / accumulation, rounded up."""
    return -(-micro_batches // accumulation)


def micro_batches(schedule: Schedule, epoch_step: int) -> range:
    """Return the numbers of the micro-batches of step `epoch_step` of an epoch; both count from 1."""
    end = schedule.accumulation * epoch_step
    last = end if schedule.micro_batches is None else min(end, schedule.micro_batches)
    return range(end - schedule.accumulation + 1, last + 1)


def reads_metrics(position: Position) -> bool:
    """Return whether all ranks read the metric sums from the device at `position`, before the hooks of its event."""
    if position.event is Event.STEP_END:
        return position.step % UNREAD_STEPS == 0
    return position.event in (Event.LOG, Event.EVALUATE, Event.SAVE, Event.EPOCH_END, Event.TRAIN_END)


def is_saved(schedule: Schedule, step: int) -> bool:
    """Return whether a checkpoint of `step` is due. The best step so far is saved after its evaluation in any case."""
    return schedule.save_every > 0 and (step == schedule.total_steps or is_due(step, schedule.save_every))


def is_due(step: int, every: int) -> bool:
    """Return whether `step` is a multiple of `every`; False if `every` is 0."""
    return every > 0 and step % every == 0


def logging_interval(schedule: Schedule, step: int) -> tuple[int, int]:
    """Return the first and last step of the logging interval that contains `step`.

    For a step whose metrics are not logged, such as a step after the last log line, return the step itself twice.
    """
    every = schedule.log_every
    last = -(-step // every) * every if every else 0  # `step` rounded up to a multiple of `every`
    return (last - every + 1, last) if 0 < last <= schedule.total_steps else (step, step)
