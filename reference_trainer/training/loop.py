"""Carry out the events of a schedule, in a training loop. `update.py` takes the steps; this module decides when.

A step has four phases:

1. Fetch the micro-batches of the step.
2. Count their scored tokens over all ranks; the count is the divisor of all gradients of the step.
3. Run forward and backward of every micro-batch.
4. Step the optimizer.

Reading a value from the device blocks until the device has computed the value. Values are therefore read only at
events for which `reads_metrics` returns True, when a callback reads a value, and before a save on request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor

from reference_trainer.callbacks.base import Callback
from reference_trainer.callbacks.dispatch import Callbacks
from reference_trainer.distillation.features import FeatureMatching
from reference_trainer.distillation.protocols import Batch, Student
from reference_trainer.distillation.universal import Frozen
from reference_trainer.errors import StopRequestedError, first_line
from reference_trainer.plan.objective import Objective
from reference_trainer.plan.schedule import (
    REQUESTS,
    Action,
    Event,
    Position,
    Schedule,
    is_saved,
    next_position,
    reads_metrics,
)
from reference_trainer.ranks.parallel import ONE_PROCESS, Agreement, Parallel
from reference_trainer.training.record import Record
from reference_trainer.training.state import (
    NO_SUM,
    ResumePoint,
    RunIdentity,
    RunServices,
    Saved,
    TrainResult,
    UpdateOptions,
)
from reference_trainer.training.update import Update, new_optimizer

__all__ = ["BETWEEN_UPDATES", "Objective", "Saved", "TrainResult", "new_optimizer", "train"]

BETWEEN_EPOCHS = (Event.TRAIN_BEGIN, Event.EPOCH_END)
"""Events after which no epoch is open."""
BETWEEN_UPDATES = (Event.STEP_END, Event.EPOCH_END, Event.EPOCH_BEGIN, Event.STEP_BEGIN)
"""Events after which a resumed run can continue: the step is complete, and the next update has not begun."""
_OPTIONS, _SERVICES, _IDENTITY = UpdateOptions(), RunServices(), RunIdentity()


def train(
    teacher: Frozen,
    student: Student,
    batch_at: Callable[[int, int], Batch],
    optimizer: torch.optim.Optimizer | None,
    *,
    schedule: Schedule,
    objective: Objective,
    learning_rate: Callable[[int], float],
    callbacks: Iterable[Callback] | Callbacks = (),
    parallel: Parallel = ONE_PROCESS,
    features: FeatureMatching | None = None,
    options: UpdateOptions = _OPTIONS,
    services: RunServices = _SERVICES,
    resume_from: ResumePoint | None = None,
    identity: RunIdentity = _IDENTITY,
) -> TrainResult:
    """Distil `teacher` into `student` as planned by `schedule`, and call `callbacks` at every event.

    Args:
        teacher: The frozen model.
        student: The model that is trained.
        batch_at: Called with an epoch and k, both from 1; returns micro-batch k of this rank in that epoch.
        optimizer: The optimizer; None for a student that applies its gradient itself.
        schedule: The order of the events.
        objective: Temperature and loss weights by step.
        learning_rate: Returns the learning rate of a step; steps count from 1. The rate is set in every parameter group
            before the step. If `optimizer` is None, the rate is only reported.
        callbacks: Called at every event. A `Callbacks` object stays open after the run.
        parallel: The ranks that train together.
        features: The hidden states to match in steps with a feature_weight; by default, the last layers.
        options: Numerical settings of the steps.
        services: The caller's functions for evaluation, checkpoints, requests to stop and time.
        resume_from: The state of a saved run to continue from.
        identity: Name and attempt of the run.

    Returns:
        The result of the run, also if a callback has ended the run.

    Raises:
        CallbackError: Before the first event, if `Callbacks` refuses a callback; later, if a hook returns something
            other than an action, or a state is not JSON.
        StopRequestedError: If a rank was asked to stop; with `services.save`, after a save of the last complete step.
        TrainerError: As `kd_window`.

    Errors of a step or a callback propagate after `on_train_end`; if a step was completed, with the step in a note.
    """
    update = Update(
        teacher=teacher,
        student=student,
        batch_at=batch_at,
        optimizer=optimizer,
        schedule=schedule,
        objective=objective,
        parallel=parallel,
        features=features,
        options=options,
        agreement=Agreement(parallel, services.stop_requested),
    )
    record = Record(update, learning_rate, services, resume_from, identity)
    registered = callbacks if isinstance(callbacks, Callbacks) else Callbacks(callbacks)
    try:
        with update.random_state():
            return _Run(record, registered, services).run()
    finally:
        if registered is not callbacks:
            registered.close()


class _Run:
    """Carry out the events of a run in order. `record` holds the data for contexts and for the result.

    Attributes:
        start_step: Step at which this process started.
        resume_position: Position to save if the next event fails; None if a resumed run could not continue from there,
            as during an update.
        saved_step: Last step with a checkpoint that was due; a checkpoint of only the best step does not count.
        step_actions: Actions that hooks have returned since `_take_step` began, so without actions of `on_step_begin`.
    """

    def __init__(self, record: Record, callbacks: Callbacks, services: RunServices) -> None:
        self.record, self.update, self.schedule = record, record.update, record.schedule
        self.callbacks, self.evaluate, self.save = callbacks, services.evaluate, services.save
        self.state, self.agreement = record.state, record.update.agreement
        self.start_step = self.state.position.step
        self.resume_position: Position | None = None
        # A run that is resumed from a checkpoint in its own output directory need not save that step again.
        self.saved_step = self.start_step if record.checkpoint is not None else 0
        self.step_actions = Action.CONTINUE

    def run(self) -> TrainResult:
        """Run all events, call `on_train_end`, and return the result.

        After an error, call `on_train_end` too, and add a note with the last completed step, if any, to the error.
        """
        try:
            try:
                self._run_events()
            except BaseException as error:
                self.callbacks.end(self.record.context(Event.TRAIN_END), error)
                raise
            self.callbacks.end(self.record.context(Event.TRAIN_END), None)
        except BaseException as error:
            last = self.state.position
            if last.step:
                error.add_note(f"after {last.step} of {self.schedule.total_steps} steps, in epoch {last.epoch}")
            raise
        return self.record.result()

    def _run_events(self) -> None:
        """Run all events before TRAIN_END. After an error, save the run if its only process was asked to stop."""
        try:
            self._loop_over_events()
        except Exception as error:
            # A signal that asks the process group to stop also kills data-loader workers, and then the next step fails.
            # A run that was asked to stop therefore saves after an error too.
            if self.resume_position is not None and self.agreement.is_stop_requested_alone():
                self._save_and_stop(self.resume_position, self.callbacks.states(), failure=error)
            raise

    def _loop_over_events(self) -> None:
        """Advance from event to event until TRAIN_END.

        1. Go to the next position. If it is an optimizer step, take the step. Read values that are due.
        2. Do the work of the event, and call its hooks. The actions that the hooks return decide the next position.
        3. After a completed step, save and stop if a rank was asked to stop.
        """
        state = self.state
        self.callbacks.restore(state.callbacks)
        action = self.agreement.record(self._call(Event.TRAIN_BEGIN))
        if self.record.checkpoint is not None:
            self._call(Event.SAVE)  # the run may have been killed after it wrote the checkpoint and before `on_save`
        while state.position.event is not Event.TRAIN_END:
            state.position = position = self._advance(action)
            if reads_metrics(position):
                self.record.read()
            is_stopping = position.event is Event.STEP_END and self.agreement.is_stop_requested()
            # A resumed run calls `on_step_end` of the saved step again, so save the states from before this call.
            states = self.callbacks.states() if is_stopping else {}
            self._update_resume_position(position)
            action = self.agreement.record(self._handle(position.event))
            if is_stopping:
                # The resumed run continues from SAVE, the event before STEP_END.
                self._save_and_stop(replace(position, event=Event.SAVE), states)
            if position.event in BETWEEN_UPDATES and position.step:
                self.resume_position = position
        self._save_last_step()
        if self.agreement.is_stop_requested_of_ranks():  # since the last step, which is saved
            raise StopRequestedError("stopped on request")

    def _update_resume_position(self, position: Position) -> None:
        """Update `resume_position` before the hooks of `position` are called."""
        if position.event in (Event.EVALUATE, Event.STEP_END):
            self.resume_position = replace(position, event=Event.SAVE)
        elif position.event not in BETWEEN_UPDATES:
            self.resume_position = None  # the weights have changed, and not all hooks of the step have been called
        elif self.resume_position is not None:
            # No update was made since `resume_position` was set, so only the callbacks' actions have changed.
            actions = {name: getattr(position, name) for name in ("skipping", "stopping", "asked")}
            self.resume_position = replace(self.resume_position, **actions)

    def _advance(self, action: Action) -> Position:
        """Return the position after the current one. If the next event is an optimizer step, take the step.

        All ranks must go to the same position, so the actions of the callbacks of all ranks are reduced: at epoch
        boundaries and before a save by `reduce`, and before an optimizer step together with the token counts.
        """
        event, agreement = self.state.position.event, self.agreement
        position = self._next_position(action)
        # With several ranks `action` is CONTINUE (see `Agreement.record`), so all ranks take the same branch.
        if event in (*BETWEEN_EPOCHS, Event.EPOCH_BEGIN) or position.event is Event.SAVE:
            position = self._next_position(agreement.reduce(action, between_epochs=event in BETWEEN_EPOCHS))
        if position.event is Event.OPTIMIZER_STEP:
            self._take_step(position)
            return self._next_position(action | agreement.actions)  # EPOCH_END if a callback returned SKIP or STOP
        return position

    def _next_position(self, action: Action) -> Position:
        """Return the position after the current one, whose callbacks have returned `action`."""
        position = next_position(self.schedule, self.state.position, action)
        assert position is not None, "only TRAIN_END has no next position"
        return position

    def _handle(self, event: Event) -> Action:
        """Do the work of an event, call its hooks, and return their actions. `run` calls the hooks of TRAIN_END."""
        record, step = self.record, self.state.position.step
        match event:
            case Event.EPOCH_BEGIN:
                self.state.epoch = NO_SUM
            case Event.STEP_BEGIN:
                record.begin_step()
            case Event.OPTIMIZER_STEP:
                return self.step_actions | self._call(event)
            case Event.LOG:
                record.log()
            case Event.EVALUATE if self.evaluate is not None:
                record.note_evaluation(self.evaluate())
            case Event.SAVE if self.save is not None:
                evaluated = self.state.evaluated_step == step
                due = is_saved(self.schedule, step) or Action.SAVE in self.state.position.asked
                return self._save(self.save, Saved(state=self.state, due=due, evaluated=evaluated))
            case Event.EVALUATE | Event.SAVE | Event.TRAIN_END:
                # Without a function that evaluates or saves, the hooks of the event are not called.
                return Action.CONTINUE
        return self._call(event)

    def _save(self, save: Callable[[Saved], Path | None], saved: Saved, states: dict[str, str] | None = None) -> Action:
        """Save the run after all observers have processed the events so far. Call `on_save` if `save` returned a path.

        The file of this path may still be written in the background.

        states: the states of callbacks to save; by default their current states.
        """
        self.callbacks.settle()
        if saved.due:
            self.saved_step = saved.state.position.step
        self.state.callbacks = self.callbacks.states() if states is None else states
        self.record.note_time()
        self.record.checkpoint = save(saved)
        return Action.CONTINUE if self.record.checkpoint is None else self._call(Event.SAVE)

    def _call(self, event: Event, micro_batch: int | None = None, batch: Callable[[], object] | None = None) -> Action:
        """Call the hooks of an event, and return their actions. A context is made only if a callback has the hook."""
        if not self.callbacks.has_callbacks(event):
            return Action.CONTINUE
        return self.callbacks.fire(event, self.record.context(event, micro_batch, batch))

    def _take_step(self, position: Position) -> None:
        """Take a step, unless a callback of any rank has returned SKIP or STOP."""
        self.step_actions = Action.CONTINUE
        rate = self.record.learning_rate(position.step)
        result = self.update.take_step(position, rate, self)
        if result is not None:
            self.record.pending.add(*result)
            self.record.rate = rate

    def _save_and_stop(self, position: Position, states: dict[str, str], failure: Exception | None = None) -> NoReturn:
        """Save the last complete step, unless it is saved already, and raise `StopRequestedError`.

        Args:
            position: The position from which a resumed run continues.
            states: The states of callbacks to save.
            failure: The error that a later event has raised.
        """
        self.resume_position = None  # if this save fails, do not try another one
        self.record.read()
        if self.save is not None and position.step != self.saved_step:
            # Save the actions that have not been carried out yet, so that the resumed run carries them out.
            actions = self.agreement.reduce(Action.CONTINUE)
            stopping = position.stopping or Action.STOP in actions
            skipping = position.skipping or Action.SKIP in actions
            asked = position.asked | (actions & REQUESTS)
            self.state.position = replace(position, skipping=skipping, stopping=stopping, asked=asked)
            self._save(self.save, Saved(state=self.state, due=True, evaluated=False), states)
        failed = "" if failure is None else f", then failed with {type(failure).__name__}: {first_line(failure)}"
        raise StopRequestedError(f"stopped on request{failed}") from failure

    def _save_last_step(self) -> None:
        """Save the last step if this process took the step and has not saved it, and saves are enabled or requested."""
        step = self.state.position.step
        is_wanted = self.schedule.save_every or Action.SAVE in self.state.position.asked
        if self.save is not None and is_wanted and step not in (self.start_step, self.saved_step):
            self._save(self.save, Saved(state=self.state, due=True, evaluated=False))

    # `Update.take_step` calls the methods below at the events within a step.

    def before_forward(self, micro_batch: int) -> None:
        if self.update.optimizer is None:  # the student changes its weights in its backward
            self.resume_position = None
        self._call_within(Event.BEFORE_FORWARD, micro_batch + 1)

    @property
    def after_backward(self) -> Callable[[int, Mapping[str, Tensor], Tensor], None] | None:
        return self._after_backward if self.callbacks.has_callbacks(Event.AFTER_BACKWARD) else None

    def _after_backward(self, micro_batch: int, sums: Mapping[str, Tensor], count: Tensor) -> None:
        def batch_metrics() -> dict[str, float]:
            # Called only if a callback reads the metrics, because `tolist` waits for the device.
            loss, tokens = torch.stack([sums["loss"], count]).tolist()
            return {"tokens": int(tokens), "loss": loss / tokens} if tokens else {"tokens": 0}

        self._call_within(Event.AFTER_BACKWARD, micro_batch + 1, batch_metrics)

    def before_update(self, gradient_norm: Tensor | None) -> None:
        self.record.gradient_norm = gradient_norm
        self._call_within(Event.PRE_OPTIMIZER_STEP)
        self.resume_position = None  # the optimizer changes the weights next

    def _call_within(
        self, event: Event, micro_batch: int | None = None, batch: Callable[[], object] | None = None
    ) -> None:
        """Call the hooks of an event within a step; `_handle` returns their actions at OPTIMIZER_STEP."""
        self.step_actions |= self._call(event, micro_batch, batch)
