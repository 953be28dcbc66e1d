"""Predicates over bounded boxes: the plan of a run, in pure integers.

The subject has `Schedule`, `Position`, `START`, `Event`, `Action`, `following` and `SettingError`, as
`reference_trainer.plan` does; where callbacks are asked it has `ask` and `Callback`, as `reference_trainer.callbacks`
does, and the plan is the trainer's. Expectations are closed forms.
"""

from __future__ import annotations

from typing import Any

from reference_trainer import plan


def prove_callbacks_come_in_lexicographic_order(subject: Any, callbacks: int, steps: int, per_epoch: int) -> None:
    """(step, callback) of every on_step_end: in lexicographic order, none twice, none left out."""
    told = _told(subject, callbacks, steps, per_epoch, None if steps else 0, callbacks // 2)
    expected = [(step, number) for step in range(1, steps + 1) for number in range(callbacks)]
    assert told == expected, f"{callbacks} callbacks and {steps} steps: on_step_end came as (step, callback) {told}"


def prove_stop_is_heard_by_all(subject: Any, callbacks: int, stop_at: int, stopping: int) -> None:
    """STOP at step `stop_at` (0: before the first) from callback `stopping`: so many steps, all heard by everybody."""
    told = _told(subject, callbacks, 32, 5, stop_at, stopping)
    expected = [(step, number) for step in range(1, stop_at + 1) for number in range(callbacks)]
    assert told == expected, f"STOP at step {stop_at}: on_step_end came as (step, callback) {told}"


def _told(
    subject: Any, callbacks: int, steps: int, per_epoch: int, stop_at: int | None, stopping: int
) -> list[tuple[int, int]]:
    """(step, callback) of each on_step_end of a run of `steps` steps without models."""
    told: list[tuple[int, int]] = []
    listening = _listeners(subject, told, callbacks, stop_at, stopping)
    schedule, position = plan.Schedule(epochs=33, steps_per_epoch=per_epoch, limit=max(steps, 1)), plan.START
    for _ in range(200):
        answer = subject.ask(listening, position.event, position)
        nobody = stop_at == 0 and not callbacks  # is there to say it
        after = plan.following(schedule, position, plan.Action.STOP if nobody else answer)
        if after is None:
            return told
        position = after
    raise AssertionError(f"{schedule} has no end: it is at {position}")


def _listeners(subject: Any, told: list[tuple[int, int]], callbacks: int, stop_at: int | None, stopping: int) -> Any:
    """Callbacks of one class that write down their steps; number `stopping` says STOP at step `stop_at`."""

    class Listener(subject.Callback):
        def __init__(self, number: int) -> None:
            self.number = number

        def on_train_begin(self, context: Any) -> Any:
            return plan.Action.STOP if (self.number, stop_at) == (stopping, 0) else None

        def on_step_end(self, context: Any) -> Any:
            told.append((context.step, self.number))
            return plan.Action.STOP if (self.number, context.step) == (stopping, stop_at) else None

    return [Listener(number) for number in range(callbacks)]


def prove_stop_takes_no_further_step(subject: Any, epochs: int, per_epoch: int, limit: int, events: int) -> None:
    """STOP as the answer to an event, `events` after the first: no step follows, and an open epoch is closed."""
    schedule = subject.Schedule(epochs=epochs, steps_per_epoch=per_epoch, limit=limit)
    position = _after(subject, schedule, events)
    if position is None or position.event is subject.Event.TRAIN_END:
        return  # the run was over by then
    came, after = [], subject.following(schedule, position, subject.Action.STOP)
    while after is not None and len(came) < 3:
        came.append(after.event.name)
        assert after.step == position.step, f"{after} comes after STOP at {position}"
        after = subject.following(schedule, after, subject.Action.CONTINUE)
    open_epoch = position.event in (subject.Event.EPOCH_BEGIN, subject.Event.STEP_END)
    expected = [*["EPOCH_END"] * open_epoch, "TRAIN_END"]
    assert came == expected, f"after STOP at {position} came {came}; expected {expected}"


def _after(subject: Any, schedule: Any, events: int) -> Any:
    """The position after so many events in which nobody says anything; None where the run is over by then."""
    position = subject.START
    for _ in range(events):
        if position is not None:
            position = subject.following(schedule, position, subject.Action.CONTINUE)
    return position


def prove_early_break_is_exact(subject: Any, limit: int, per_epoch: int, epochs: int) -> None:
    """A run is walked: min(N, epochs * per_epoch) steps, each epoch that was begun closed, none begun for nothing."""
    schedule, total = (
        subject.Schedule(epochs=epochs, steps_per_epoch=per_epoch, limit=limit),
        min(limit, epochs * per_epoch),
    )
    assert schedule.total_steps == total, f"{schedule.total_steps} steps are announced, not {total}"
    sizes, closed, event, position = [], 0, subject.Event, subject.START
    while position.event is not event.TRAIN_END:
        if position.event is event.STEP_END:
            assert position.step <= total, f"the run goes on after step {total}"
            sizes[-1] += 1
        elif position.event is event.EPOCH_BEGIN:
            assert closed == len(sizes), f"epoch {closed + 1} is begun before epoch {closed} is closed"
            sizes.append(0)
        else:
            closed += position.event is event.EPOCH_END
        position = subject.following(schedule, position, subject.Action.CONTINUE)
    whole, rest = divmod(total, per_epoch)
    expected = [per_epoch] * whole + [rest] * (rest > 0)
    assert sizes == expected, f"the epochs have {sizes} steps; expected {expected}"
    assert closed == len(sizes), f"{closed} of {len(sizes)} epochs are closed"


def prove_each_event_follows(subject: Any, epochs: int, per_epoch: int, limit: int, epoch: int, done: int) -> None:
    """From any place of any run, the next event is the one that takes it to exactly min(N, epochs * per_epoch) steps.

    By induction over events this holds of the whole run, however long. `limit` 0 stands for none.
    """
    schedule = subject.Schedule(epochs=epochs, steps_per_epoch=per_epoch, limit=limit or None)
    total = min(limit, epochs * per_epoch) if limit else epochs * per_epoch
    assert schedule.total_steps == total, f"{schedule.total_steps} steps are announced, not {total}"
    first = subject.following(schedule, subject.START, subject.Action.CONTINUE)
    assert (first.event, first.epoch, first.step) == (subject.Event.EPOCH_BEGIN, 1, 0), f"it begins with {first}"
    step = (epoch - 1) * per_epoch + done
    if step > total or (step == total and not done):
        return  # no run comes here
    event = subject.Event.STEP_END if done else subject.Event.EPOCH_BEGIN
    now = subject.Position(event=event, epoch=epoch, step=step, epoch_step=done)
    after = subject.following(schedule, now, subject.Action.CONTINUE)
    if step == total or done == per_epoch:
        assert after.event is subject.Event.EPOCH_END, f"{after.event.name} follows {step} of {total} steps"
        beyond = subject.following(schedule, after, subject.Action.CONTINUE)
        ended = step == total or epoch == epochs
        expected = subject.Event.TRAIN_END if ended else subject.Event.EPOCH_BEGIN
        assert beyond.event is expected, f"{beyond.event.name} follows the epoch that ends with {step} of {total} steps"
        assert (beyond.step, beyond.epoch) == (step, epoch + (not ended)), f"it goes on at {beyond}"
    else:
        assert after.event is subject.Event.STEP_END, f"{after.event.name} follows {step} of {total} steps"
        assert (after.step, after.epoch, after.epoch_step) == (step + 1, epoch, done + 1), f"it goes on at {after}"


def prove_no_steps_are_refused(subject: Any, limit: int, per_epoch: int, epochs: int) -> None:
    """A plan of no or fewer steps is an error that names the number; it is never divided by."""
    smallest = min(limit, per_epoch, epochs)
    try:
        schedule = subject.Schedule(epochs=epochs, steps_per_epoch=per_epoch, limit=limit)
    except subject.SettingError as error:
        wrong = [number for number in (epochs, per_epoch, limit) if number < 1]
        assert wrong and repr(wrong[0]) in str(error), f"N = {limit}, {epochs} x {per_epoch} is refused: {error}"
        return
    assert smallest >= 1, f"{schedule} is accepted"
    assert schedule.total_steps >= 1, f"{schedule} has {schedule.total_steps} steps"
