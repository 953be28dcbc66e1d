"""Groups of arguments of `loop.train`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from reference_trainer.training.result import Saved
from reference_trainer.training.state import TrainState

__all__ = ["ResumePoint", "RunIdentity", "RunServices", "UpdateOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOptions:
    """Numerical settings of the optimizer steps.

    clip: largest norm of a step's gradient, which is multiplied by min(1, clip / (norm + 1e-6)); None does not clip.
    seed: seed of the random numbers of every micro-batch; the default generators are restored after the run. None
    leaves the generators alone.
    deferred: whether a step with invalid values is left out and raises when it is read, instead of raising at once; by
    default where reading waits for a device. It needs an optimizer that takes `found_inf`, as the fused ones of PyTorch
    do; with another one, the step raises at once.
    """

    clip: float | None = None
    seed: int | None = None
    deferred: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunServices:
    """Functions of the caller that a run calls.

    evaluate: Return the metrics of an evaluation; called in the steps that the schedule evaluates.
    save: Write a checkpoint; return its path, or None if none was written. Called in each step that is evaluated or
    whose checkpoint is due, and before `on_train_end` if callbacks have ended the run after another step.
    stop_requested: Polled once a step, before its `on_step_end`, or before the step on several ranks; if any rank
    returns True, save the step and raise `StopRequestedError`. One process polls it after an error too, and does the
    same if no update has begun since the last whole step.
    step_flops: Return the floating-point operations of a whole step, for the metric flops_per_s, or None to leave the
    metric out; called once, at the first logged step.
    clock: Return a time in seconds, which never decreases.
    """

    evaluate: Callable[[], Mapping[str, float]] | None = None
    save: Callable[[Saved], Path | None] | None = None
    stop_requested: Callable[[], bool] = lambda: False
    step_flops: Callable[[], int | None] | None = None
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """State to continue from; the caller has restored student and optimizer.

    The run calls `on_train_begin`, `on_save` if `checkpoint` is not None, and the `on_step_end` of the saved step,
    unless the saved run had ended.

    state: state that `RunServices.save` received.
    checkpoint: path of the checkpoint that holds it; None if it belongs to another run.
    """

    state: TrainState
    checkpoint: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """Name and attempt of a run, as in `Context`."""

    run: str = ""
    attempt: int = 1
