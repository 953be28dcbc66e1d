"""Predicates over bounded boxes: the schedule of a run, in pure integers.

The subject has `Schedule`, `Position`, `START`, `Event`, `Action`, `following` and `SettingError`, as
`training.schedule` does; for calls of hooks it has `call_hooks` and `Callback`, as `training.callbacks`
does, and the schedule is the trainer's. Expectations are closed forms.
"""

from __future__ import annotations

from typing import Any

from reference_trainer.training import schedule


def prove_callbacks_are_called_in_order(subject: Any, callbacks: int, steps: int, per_epoch: int) -> None:
    """(step, callback) of every on_step_end: in lexicographic order, without repeats or gaps."""
    calls = _calls(subject, callbacks, steps, per_epoch, None if steps else 0, callbacks // 2)
    expected = [(step, number) for step in range(1, steps + 1) for number in range(callbacks)]
    assert calls == expected, f"{callbacks} callbacks and {steps} steps: on_step_end calls (step, callback): {calls}"


def prove_stop_reaches_every_callback(subject: Any, callbacks: int, stop_at: int, stopping: int) -> None:
    """STOP at step `stop_at` (0: before the first) from callback `stopping`: so many steps, each on every callback."""
    calls = _calls(subject, callbacks, 32, 5, stop_at, stopping)
    expected = [(step, number) for step in range(1, stop_at + 1) for number in range(callbacks)]
    assert calls == expected, f"STOP at step {stop_at}: on_step_end calls (step, callback): {calls}"


def _calls(
    subject: Any, callbacks: int, steps: int, per_epoch: int, stop_at: int | None, stopping: int
) -> list[tuple[int, int]]:
    """Return (step, callback) of each on_step_end of a run of `steps` steps without models."""
    calls: list[tuple[int, int]] = []
    recorders = _recorders(subject, calls, callbacks, stop_at, stopping)
    plan, position = schedule.Schedule(epochs=33, steps_per_epoch=per_epoch, limit=max(steps, 1)), schedule.START
    for _ in range(200):
        answer = subject.call_hooks(recorders, position.event, position)
        no_step = stop_at == 0 and not callbacks  # without a callback the answer STOP is given here
        after = schedule.following(plan, position, schedule.Action.STOP if no_step else answer)
        if after is None:
            return calls
        position = after
    raise AssertionError(f"{plan} does not end: it is at {position}")


def _recorders(subject: Any, calls: list[tuple[int, int]], callbacks: int, stop_at: int | None, stopping: int) -> Any:
    """Return callbacks of one class that record their steps; number `stopping` answers STOP at step `stop_at`."""

    class Recorder(subject.Callback):
        def __init__(self, number: int) -> None:
            self.number = number

        def on_train_begin(self, context: Any) -> Any:
            return schedule.Action.STOP if (self.number, stop_at) == (stopping, 0) else None

        def on_step_end(self, context: Any) -> Any:
            calls.append((context.step, self.number))
            return schedule.Action.STOP if (self.number, context.step) == (stopping, stop_at) else None

    return [Recorder(number) for number in range(callbacks)]


def prove_stop_takes_no_further_step(subject: Any, epochs: int, per_epoch: int, limit: int, events: int) -> None:
    """STOP as the answer to an event, `events` after the first: no step follows, and an open epoch is closed."""
    schedule = subject.Schedule(epochs=epochs, steps_per_epoch=per_epoch, limit=limit)
    position = _after(subject, schedule, events)
    if position is None or position.event is subject.Event.TRAIN_END:
        return  # the run has ended
    followed, after = [], subject.following(schedule, position, subject.Action.STOP)
    while after is not None and len(followed) < 3:
        followed.append(after.event.name)
        assert after.step == position.step, f"{after} follows STOP at {position}"
        after = subject.following(schedule, after, subject.Action.CONTINUE)
    open_epoch = position.event in (subject.Event.EPOCH_BEGIN, subject.Event.STEP_END)
    expected = [*["EPOCH_END"] * open_epoch, "TRAIN_END"]
    assert followed == expected, f"STOP at {position} is followed by {followed}; expected {expected}"


def _after(subject: Any, schedule: Any, events: int) -> Any:
    """Return the position after so many events without an answer; None if the run has ended."""
    position = subject.START
    for _ in range(events):
        if position is not None:
            position = subject.following(schedule, position, subject.Action.CONTINUE)
    return position


def prove_each_event_follows(subject: Any, epochs: int, per_epoch: int, limit: int, epoch: int, done: int) -> None:
    """From any position of any run, the next event leads to exactly min(N, epochs * per_epoch) steps.

    By induction over events this holds for runs of any length. `limit` 0 means None.
    """
    schedule = subject.Schedule(epochs=epochs, steps_per_epoch=per_epoch, limit=limit or None)
    total = min(limit, epochs * per_epoch) if limit else epochs * per_epoch
    assert schedule.total_steps == total, f"{schedule.total_steps} steps are planned; expected {total}"
    first = subject.following(schedule, subject.START, subject.Action.CONTINUE)
    assert (first.event, first.epoch, first.step) == (subject.Event.EPOCH_BEGIN, 1, 0), f"the first event is {first}"
    step = (epoch - 1) * per_epoch + done
    if step > total or (step == total and not done):
        return  # no run reaches this position
    event = subject.Event.STEP_END if done else subject.Event.EPOCH_BEGIN
    now = subject.Position(event=event, epoch=epoch, step=step, epoch_step=done)
    after = subject.following(schedule, now, subject.Action.CONTINUE)
    if step == total or done == per_epoch:
        assert after.event is subject.Event.EPOCH_END, f"{after.event.name} follows {step} of {total} steps"
        beyond = subject.following(schedule, after, subject.Action.CONTINUE)
        ended = step == total or epoch == epochs
        expected = subject.Event.TRAIN_END if ended else subject.Event.EPOCH_BEGIN
        assert beyond.event is expected, f"{beyond.event.name} follows the epoch that ends with {step} of {total} steps"
        assert (beyond.step, beyond.epoch) == (step, epoch + (not ended)), f"then comes {beyond}"
    else:
        assert after.event is subject.Event.STEP_END, f"{after.event.name} follows {step} of {total} steps"
        assert (after.step, after.epoch, after.epoch_step) == (step + 1, epoch, done + 1), f"then comes {after}"
