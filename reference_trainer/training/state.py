"""The state of a run between two optimizer steps, the result of a run, and the option classes of `loop.train`."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, with_config

from reference_trainer.distillation.step import MetricSum
from reference_trainer.plan.schedule import START, Position

NO_SUM = MetricSum(0.0, 0)
_JSON = ConfigDict(ser_json_inf_nan="strings", extra="forbid")


@with_config(_JSON)
@dataclass(slots=True, kw_only=True)
class TrainState:
    """The state of a run after an event. Losses are means over the tokens of one step, before its update, in nats.

    Attributes:
        position: Position of the last event.
        steps: Number of steps whose sums have been read.
        sequences: Number of sequences with a scored token in these steps, of all ranks.
        tokens: Number of scored tokens in these steps, of all ranks.
        initial_loss: Loss of the first step with a scored token; None before such a step.
        final_loss: Loss of the last step with a scored token; None before such a step.
        best_loss: The smallest finite loss; None before a finite loss.
        loss: Loss of the last step; None if it scored no token.
        finite: Whether every loss was finite.
        elapsed_s: Seconds from the start of the run to its last event.
        epoch: Sum of the loss since the start of the epoch, and its number of tokens.
        interval: Sums since the last logged step, by name.
        metrics: Metrics of the last logged step.
        logged_step: Last logged step; 0 before the first.
        validation: Metrics of the last evaluation.
        evaluated_step: Step of the last evaluation; 0 before the first.
        callbacks: States of callbacks as JSON, by name.
    """

    position: Position
    steps: int
    sequences: int
    tokens: int
    initial_loss: float | None
    final_loss: float | None
    best_loss: float | None
    loss: float | None
    finite: bool
    elapsed_s: float
    epoch: MetricSum
    interval: dict[str, MetricSum]
    metrics: dict[str, float]
    logged_step: int
    validation: dict[str, float]
    evaluated_step: int
    callbacks: dict[str, str]

    def add_step(self, sums: Mapping[str, MetricSum], sequences: int) -> None:
        """Add the sums of one step.

        Args:
            sums: "loss" and other sums by name, over all ranks.
            sequences: The number of sequences with a scored token, over all ranks.
        """
        for name, total in sums.items():
            self.interval[name] = self.interval.get(name, NO_SUM) + total
        loss = sums["loss"]
        self.steps += 1
        self.sequences += sequences
        self.tokens += loss.count
        self.epoch = self.epoch + loss
        self.loss = loss.sum / loss.count if loss.count else None
        if self.loss is not None:
            self._add_loss(self.loss)

    def _add_loss(self, loss: float) -> None:
        self.initial_loss = loss if self.initial_loss is None else self.initial_loss
        self.final_loss = loss
        if math.isfinite(loss):
            self.best_loss = min(loss, math.inf if self.best_loss is None else self.best_loss)
        else:
            self.finite = False


def initial_state() -> TrainState:
    """Return the state of a run before its first event."""
    return TrainState(
        position=START,
        steps=0,
        sequences=0,
        tokens=0,
        initial_loss=None,
        final_loss=None,
        best_loss=None,
        loss=None,
        finite=True,
        elapsed_s=0.0,
        epoch=NO_SUM,
        interval={},
        metrics={},
        logged_step=0,
        validation={},
        evaluated_step=0,
        callbacks={},
    )


def state_to_json(state: TrainState) -> str:
    """Return the state as JSON; losses that are not finite are strings, because JSON has no NaN."""
    return _adapter().dump_json(state).decode()


def state_from_json(text: str) -> TrainState:
    """Return the state that `state_to_json` wrote. Floats are equal in every bit; NaN stays NaN.

    Raise `ValueError` for unknown or missing fields and for values of another type, at any depth.
    """
    state = _adapter().validate_json(text)
    if _canonical(state_to_json(state)) != _canonical(text):  # pydantic accepts "3" for 3, and adds defaults
        raise ValueError("invalid state of a run: a field is missing or has another type")
    return state


def _canonical(text: str) -> str:
    """Return JSON text with sorted keys."""
    return json.dumps(json.loads(text), sort_keys=True)


@cache
def _adapter() -> TypeAdapter[TrainState]:
    """Return the pydantic adapter. It is built at the first use, since this takes longer than the module's import."""
    return TypeAdapter(TrainState)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """Result of a run. Losses are means over the tokens of one step, before its update, in nats.

    Attributes:
        initial_loss: Loss of the first step with a scored token; None without such a step.
        final_loss: Loss of the last step with a scored token; None without such a step.
        best_loss: The smallest finite loss; None if there is none.
        finite: Whether every loss was finite.
        steps_completed: The last step.
        tokens: Number of scored tokens.
        elapsed_s: Duration in seconds.
        stopped: Whether a callback ended the run.
        metrics: Metrics of the last logged step.
        validation: Metrics of the last evaluation.
    """

    initial_loss: float | None
    final_loss: float | None
    best_loss: float | None
    finite: bool
    steps_completed: int
    tokens: int
    elapsed_s: float
    stopped: bool
    metrics: Mapping[str, float] = field(default_factory=dict)
    validation: Mapping[str, float] = field(default_factory=dict)

    @property
    def steps_per_s(self) -> float:
        """Return optimizer steps per second; a run of zero seconds counts as one nanosecond."""
        return self.steps_completed / max(self.elapsed_s, 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The argument of `RunServices.save`.

    Attributes:
        state: The state of the run.
        due: Whether a checkpoint is due at this step. If not, save only if the step is the best.
        evaluated: Whether `state.validation` was measured at this step.
    """

    state: TrainState
    due: bool
    evaluated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOptions:
    """Numerical settings of the optimizer steps.

    Attributes:
        clip: Largest norm of a gradient. The gradient is multiplied by min(1, clip / (norm + 1e-6)); None for no limit.
        seed: Seed of the random numbers of every micro-batch; the default generators are restored after the run. None
            does not seed the generators.
        deferred: Whether a step with invalid values skips its update and raises when its sums are read, instead of at
            once; None defers on devices other than the CPU, where a read would wait. This needs an optimizer that takes
            `found_inf`, as the fused optimizers of PyTorch do; with any other optimizer the step raises at once.
    """

    clip: float | None = None
    seed: int | None = None
    deferred: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """Functions of the caller that a run calls.

    Attributes:
        evaluate: Returns the metrics of an evaluation; called in the steps that the schedule or a callback evaluates.
        save: Writes a checkpoint, or starts to; returns its path, or None if none is written. Called in each step that
            is evaluated or whose checkpoint is due or requested; before `on_train_end` if the last step is not saved
            yet, and `save_every` is not 0 or a callback has requested a save; and before `StopRequestedError`.
        stop_requested: Polled once a step: on one rank before `on_step_end`, on several ranks before the step, and also
            at the boundaries of epochs and before a save. If any rank returns True, the run saves the step and raises
            `StopRequestedError`. A run of one process polls it after an error too, and saves the last complete step if
            no update has begun since.
        step_flops: Returns the floating-point operations of a whole step, for the metric flops_per_s, or None to leave
            the metric out; called once, at the first logged step.
        clock: Returns a time in seconds; the time never decreases.
    """

    evaluate: Callable[[], Mapping[str, float]] | None = None
    save: Callable[[Saved], Path | None] | None = None
    stop_requested: Callable[[], bool] = lambda: False
    step_flops: Callable[[], int | None] | None = None
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """State to continue from; the caller has restored student and optimizer.

    The run calls `on_train_begin`, then `on_save` if `checkpoint` is not None, then continues with the event after
    `state.position`: the `on_step_end` of the saved step, or a later event if the run was saved after an error or after
    its last step.

    Attributes:
        state: The state that `RunServices.save` received.
        checkpoint: Path of the checkpoint with this state; None if the checkpoint belongs to another run.
    """

    state: TrainState
    checkpoint: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """Name and attempt of a run, as in `Context`."""

    run: str = ""
    attempt: int = 1
