"""The training loop: executes the schedule of a run, and is the only place that steps an optimizer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from reference_trainer.distillation.protocols import Batch, Student, Teacher
from reference_trainer.distillation.step import MetricSum, StepResult, kd_step
from reference_trainer.training.callbacks import Callback, Context, call_hooks, call_train_end, checked
from reference_trainer.training.schedule import START, Event, Position, Schedule, following

__all__ = ["BETAS", "EPSILON", "WEIGHT_DECAY", "Objective", "TrainResult", "new_optimizer", "train"]

WEIGHT_DECAY, BETAS, EPSILON = 0.01, (0.9, 0.999), 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Arguments of the loss that `kd_step` minimises; domains as in `reference_trainer.distillation.losses`."""

    temperature: float
    ce_weight: float
    kd_weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """Result of a run. Losses are in nats per scored token, each of one step, before the update of that step.

    initial_loss, final_loss: of the first and last step that scored a token; best_loss: the smallest finite one; each
    None if there is none. finite: whether every loss was. tokens: scored tokens. stopped: whether a callback
    ended the run.
    """

    initial_loss: float | None
    final_loss: float | None
    best_loss: float | None
    finite: bool
    steps_completed: int
    tokens: int
    elapsed_s: float
    stopped: bool

    @property
    def steps_per_s(self) -> float:
        """Return optimizer steps per second; a run of zero seconds counts as one nanosecond."""
        return self.steps_completed / max(self.elapsed_s, 1e-9)


def train(
    teacher: Teacher,
    student: Student,
    batch_at: Callable[[int, int], Batch],
    optimizer: torch.optim.Optimizer | None,
    *,
    schedule: Schedule,
    objective: Objective,
    learning_rate: Callable[[int], float],
    callbacks: Sequence[Callback] = (),
    clock: Callable[[], float] = time.monotonic,
) -> TrainResult:
    """Distil `teacher` into `student` as planned by `schedule`, and call `callbacks` at every event.

    batch_at(epoch, k): the batch of step k of an epoch, both from 1. learning_rate(step) is set before each step;
    without an optimizer (a student that applies its gradient itself) it is only reported. clock: seconds.
    Raise `CallbackError` before the first event if `checked` refuses a callback. Errors of `kd_step` and of callbacks
    propagate after `on_train_end`, with the step in a note.
    """
    run = _Run(schedule, checked(callbacks), clock)

    def take_step(position: Position) -> None:
        rate = learning_rate(position.step)
        if optimizer is not None:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.zero_grad(set_to_none=True)
        batch = batch_at(position.epoch, position.epoch_step)
        result = kd_step(
            teacher,
            student,
            batch,
            temperature=objective.temperature,
            ce_weight=objective.ce_weight,
            kd_weight=objective.kd_weight,
        )
        if optimizer is not None:
            optimizer.step()
        run.note(result, rate)

    return run.carry_out(take_step)


def new_optimizer(parameters: Iterable[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """Return the optimizer of every run. Source: Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2."""
    return torch.optim.AdamW(parameters, lr=rate, weight_decay=WEIGHT_DECAY, betas=BETAS, eps=EPSILON)


_NOTHING = MetricSum(0.0, 0)


@dataclass(slots=True)
class _Run:
    """State of a run, from which contexts and the result are made."""

    schedule: Schedule
    callbacks: tuple[Callback, ...]
    clock: Callable[[], float]
    at: Position = START
    initial_loss: float | None = None
    final_loss: float | None = None
    best_loss: float | None = None
    finite: bool = True
    loss: float | None = None
    rate: float | None = None
    tokens: int = 0
    epoch: MetricSum = _NOTHING
    began: float = field(default=0.0, init=False)

    def carry_out(self, take_step: Callable[[Position], None]) -> TrainResult:
        self.began = self.clock()
        try:
            self._run_to_train_end(take_step)
        except BaseException as error:
            if self.at.step:
                error.add_note(f"after {self.at.step} of {self.schedule.total_steps} steps, in epoch {self.at.epoch}")
            raise
        return self._result()

    def _run_to_train_end(self, take_step: Callable[[Position], None]) -> None:
        try:
            self._run_events(take_step)
        except BaseException as error:
            call_train_end(self.callbacks, self._context(Event.TRAIN_END), error)
            raise
        call_train_end(self.callbacks, self._context(Event.TRAIN_END), None)

    def _run_events(self, take_step: Callable[[Position], None]) -> None:
        while self.at.event is not Event.TRAIN_END:
            if self.at.event is Event.EPOCH_BEGIN:
                self.epoch = _NOTHING
            action = call_hooks(self.callbacks, self.at.event, self._context(self.at.event))
            after = following(self.schedule, self.at, action)
            assert after is not None, "only TRAIN_END is followed by nothing"
            if after.event is Event.STEP_END:
                take_step(after)
            self.at = after

    def note(self, result: StepResult, rate: float) -> None:
        self.rate, self.loss = rate, result.loss
        self.tokens += result.count
        self.epoch = MetricSum(self.epoch.sum + result.sum, self.epoch.count + result.count)
        if result.loss is None:
            return
        self.initial_loss = result.loss if self.initial_loss is None else self.initial_loss
        self.final_loss = result.loss
        if math.isfinite(result.loss):
            self.best_loss = min(result.loss, math.inf if self.best_loss is None else self.best_loss)
        else:
            self.finite = False

    def _context(self, event: Event) -> Context:
        return Context(
            step=self.at.step,
            epoch=self.at.epoch,
            loss=_mean(self.epoch) if event is Event.EPOCH_END else self.loss,
            learning_rate=self.rate,
            best_loss=self.best_loss,
            elapsed_s=self.clock() - self.began,
            tokens=self.tokens,
            epochs=self.schedule.epochs,
            steps_per_epoch=self.schedule.steps_per_epoch,
            total_steps=self.schedule.total_steps,
        )

    def _result(self) -> TrainResult:
        return TrainResult(
            initial_loss=self.initial_loss,
            final_loss=self.final_loss,
            best_loss=self.best_loss,
            finite=self.finite,
            steps_completed=self.at.step,
            tokens=self.tokens,
            elapsed_s=self.clock() - self.began,
            stopped=self.at.stopping,
        )


def _mean(metric: MetricSum) -> float | None:
    return metric.sum / metric.count if metric.count else None
