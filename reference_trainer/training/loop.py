"""The training loop: executes the schedule of a run, and is the only place that steps an optimizer.

A step has four phases: the micro-batches of the window are fetched; their scored tokens are counted over all ranks;
each has its forward and backward, with that one divisor; the optimizer is stepped. Nothing is read from the device
between the steps that `is_read` names, unless a callback asks for a value.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from reference_trainer.distillation.matching import FeatureMatching
from reference_trainer.distillation.protocols import Batch, Student, Teacher
from reference_trainer.errors import LabelError, LogitsError, StopRequestedError
from reference_trainer.training.callbacks import Callback, Context, call_hooks, call_train_end, checked
from reference_trainer.training.metrics import derived, rates
from reference_trainer.training.objective import Objective
from reference_trainer.training.parallel import ONE_PROCESS, Parallel
from reference_trainer.training.pending import Pending
from reference_trainer.training.result import Saved, TrainResult
from reference_trainer.training.schedule import (
    Action,
    Event,
    Position,
    Schedule,
    following,
    is_logged,
    is_read,
    is_saved,
)
from reference_trainer.training.state import NOTHING, fresh
from reference_trainer.training.update import Update, new_optimizer

__all__ = ["Objective", "Saved", "TrainResult", "new_optimizer", "train"]


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
    clip: float | None = None,
    parallel: Parallel = ONE_PROCESS,
    seed: int | None = None,
    deferred: bool | None = None,
    step_flops: Callable[[], int] | None = None,
    features: FeatureMatching | None = None,
    save: Callable[[Saved], object] | None = None,
    resumed: Saved | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> TrainResult:
    """Distil `teacher` into `student` as planned by `schedule`, and call `callbacks` at every event.

    batch_at(epoch, k): micro-batch k of this rank in an epoch, both from 1. learning_rate(step) is set before each
    step; without an optimizer (a student that applies its gradient itself) it is only reported. clip: the largest norm
    of a step's gradient, which is multiplied by min(1, clip / (norm + 1e-6)). clock: seconds. seed: of the random
    numbers of every micro-batch; the default generators are restored afterwards. With None they are left alone.
    deferred: whether an error in the values of a step leaves out its update and is raised when the step is read,
    instead of at once; by default where reading waits for a device. It needs an optimizer that takes `found_inf`, as
    the fused ones of PyTorch do. step_flops: returns the floating-point operations of a whole step, for the metric
    flops_per_s; it is called once, at the first logged step. features: the hidden states that are matched in steps
    with a feature_weight, by default those of the last layers. save: called after the hooks of each step that
    `schedule` saves. resumed: what it was given in an earlier run, whose student and optimizer the caller has restored:
    the run goes on after that step, with `on_train_begin` and without the events in between. stop_requested: asked
    after each step, on several ranks before it; once it returns True, on any of them, that step has its hooks and is
    saved, and `StopRequestedError` is raised.
    Raise `CallbackError` before the first event if `checked` refuses a callback. Errors of `kd_window` and of callbacks
    propagate after `on_train_end`, with the step in a note.
    """
    update = Update(
        teacher=teacher,
        student=student,
        batch_at=batch_at,
        optimizer=optimizer,
        schedule=schedule,
        weights=partial(objective.weights, total=schedule.planned_steps),
        clip=clip,
        parallel=parallel,
        seed=seed,
        deferred=deferred,
        features=features,
        flags=lambda: (parallel.world_size > 1 and stop_requested(), False),
    )
    run = _Run(update, objective, checked(callbacks), learning_rate, clock, step_flops, save, resumed, stop_requested)
    with update.random_state():
        return run.carry_out()


class _Run:
    """The events of a run, in order, and the state from which contexts and the result are made."""

    def __init__(
        self,
        update: Update,
        objective: Objective,
        callbacks: tuple[Callback, ...],
        learning_rate: Callable[[int], float],
        clock: Callable[[], float],
        step_flops: Callable[[], int] | None,
        save: Callable[[Saved], object] | None,
        resumed: Saved | None,
        stop_requested: Callable[[], bool],
    ) -> None:
        self.update, self.schedule, self.callbacks = update, update.schedule, callbacks
        self.objective, self.learning_rate, self.clock = objective, learning_rate, clock
        self.step_flops, self.save = step_flops, save
        self.resumed, self.stop_requested = resumed, stop_requested
        self.state = fresh() if resumed is None else copy.deepcopy(resumed.state)
        self.pending = Pending(update.parallel)
        self.flags: tuple[Tensor | None, Tensor | None] = (None, None)  # of the last two steps, summed over ranks
        self.rate = learning_rate(self.state.position.step) if self.state.position.step else None
        self.metrics: dict[str, float] = {}
        self.flops: int | None = None
        self.unread: dict[int, list[Context]] = {}  # by their step
        # Seconds, steps and tokens at the last logged step, or where this process went on.
        self.logged = (self.state.elapsed_s, self.state.steps, self.state.tokens)
        self.began = clock() - self.state.elapsed_s

    def carry_out(self) -> TrainResult:
        try:
            self._run_to_train_end()
        except BaseException as error:
            at = self.state.position
            if at.step:
                error.add_note(f"after {at.step} of {self.schedule.total_steps} steps, in epoch {at.epoch}")
            raise
        return self._result()

    def _run_to_train_end(self) -> None:
        try:
            self._run_events()
        except BaseException as error:
            call_train_end(self.callbacks, self._context(Event.TRAIN_END), error)
            raise
        call_train_end(self.callbacks, self._context(Event.TRAIN_END), None)

    def _run_events(self) -> None:
        state, action = self.state, self._begin()
        while state.position.event is not Event.TRAIN_END:
            after = following(self.schedule, state.position, action)
            assert after is not None, "only TRAIN_END is followed by nothing"
            if after.event is Event.STEP_END:
                self._take_step(after)
            state.position = after
            leaving = after.event is Event.STEP_END and self._is_leaving()
            if leaving or is_read(self.schedule, after):
                self._read()
            self.metrics = self._logged() if after.event is Event.STEP_END else {}
            if after.event is not Event.TRAIN_END:
                action = self._call_hooks(after.event)
            if self.save is not None and (leaving or is_saved(self.schedule, after)):
                self.save(Saved(state=state, action=action))
            if leaving:
                raise StopRequestedError("stopped on request")

    def _begin(self) -> Action:
        """Return the action that is answered to the event at which the run begins, or goes on."""
        action = self._call_hooks(Event.TRAIN_BEGIN)
        return action if self.resumed is None or action is Action.STOP else self.resumed.action

    def _call_hooks(self, event: Event) -> Action:
        if event is Event.EPOCH_BEGIN:
            self.state.epoch = NOTHING
        return call_hooks(self.callbacks, event, self._context(event))

    def _take_step(self, position: Position) -> None:
        rate = self.learning_rate(position.step)
        window, norm = self.update.take(position, rate)
        self.pending.add(window, norm)
        self.flags = (window.flags, self.flags[0])
        self.rate = rate

    def _is_leaving(self) -> bool:
        """Return whether a stop was requested, of any rank. All ranks agree, because the request came with the counts.

        On a GPU the flags of the step before are read, which are there already: reading these would wait for the step.
        """
        if self.update.parallel.world_size == 1:
            return self.stop_requested()
        now, before = self.flags
        flags = now if now is not None and now.device.type == "cpu" else before
        return flags is not None and bool(flags[0])

    def _read(self) -> None:
        """Note the steps whose sums are still on the device, and complete the contexts that were made meanwhile."""
        unread, self.unread = self.unread, {}
        try:
            for sums, sequences in self.pending.read():
                self.state.note(sums, sequences)
                for context in unread.get(self.state.steps, ()):
                    context.complete(self._losses())
        except (LabelError, LogitsError) as error:
            error.add_note(f"in step {self.state.steps + 1}, whose update was left out")
            raise

    def _logged(self) -> dict[str, float]:
        """Return the metrics of the steps since the last logged one, if the last step is logged."""
        if not is_logged(self.state.position.step, self.schedule.log_every):
            return {}
        state, schedule = self.state, self.schedule
        sums, state.interval = state.interval, {}
        weights = self.objective.weights(state.position.step, schedule.planned_steps)
        elapsed, tokens = self.clock() - self.began, state.tokens
        before, self.logged = self.logged, (elapsed, state.steps, tokens)
        steps = state.steps - before[1]
        amounts = {"steps": steps, "tokens": tokens - before[2]}
        if self.step_flops is not None:
            self.flops = self.step_flops() if self.flops is None else self.flops
            amounts["flops"] = self.flops * steps
        state.metrics = {
            **derived(sums),
            "temperature": weights.temperature,
            "ce_weight": weights.ce_weight,
            "kd_weight": weights.kd_weight,
            **({"feature_weight": weights.feature_weight} if weights.feature_weight else {}),
            **rates(elapsed - before[0], **amounts),
        }
        return state.metrics

    def _losses(self) -> dict[str, Any]:
        return {"loss": self.state.loss, "best_loss": self.state.best_loss, "tokens": self.state.tokens}

    def _context(self, event: Event) -> Context:
        at, epoch = self.state.position, self.state.epoch
        self.state.elapsed_s = self.clock() - self.began
        known: dict[str, Any] = {
            "step": at.step,
            "epoch": at.epoch,
            "learning_rate": self.rate,
            "elapsed_s": self.state.elapsed_s,
            "epochs": self.schedule.epochs,
            "steps_per_epoch": self.schedule.steps_per_epoch,
            "total_steps": self.schedule.total_steps,
            "metrics": self.metrics,
        }
        if self.pending and self.update.parallel.world_size == 1:
            context = Context.incomplete(self._read, known)
            self.unread.setdefault(at.step, []).append(context)
            return context
        losses = self._losses()
        if event is Event.EPOCH_END:
            losses["loss"] = epoch.sum / epoch.count if epoch.count else None
        return Context(**known, **losses)

    def _result(self) -> TrainResult:
        state = self.state
        return TrainResult(
            initial_loss=state.initial_loss,
            final_loss=state.final_loss,
            best_loss=state.best_loss,
            finite=state.finite,
            steps_completed=state.position.step,
            tokens=state.tokens,
            elapsed_s=self.clock() - self.began,
            stopped=state.position.stopping,
            metrics=state.metrics,
        )
