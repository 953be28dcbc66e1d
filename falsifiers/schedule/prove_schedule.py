"""Predicates over bounded boxes: the schedule of a run, in pure integers.

The subject has `Schedule`, `Position`, `START`, `Event`, `Action` and `following`, as `training.schedule` does.
Expectations are closed forms.
"""

from __future__ import annotations

from typing import Any


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


def prove_each_event_follows(subject: Any, epochs: int, per_epoch: int, epoch: int, done: int) -> None:
    """From any position of any run, the next event leads to exactly epochs * per_epoch steps.

    By induction over events this holds for runs of any length.
    """
    schedule, total = subject.Schedule(epochs=epochs, steps_per_epoch=per_epoch), epochs * per_epoch
    assert schedule.total_steps == total, f"{schedule.total_steps} steps are planned; expected {total}"
    first = subject.following(schedule, subject.START, subject.Action.CONTINUE)
    expected = subject.Position(event=subject.Event.EPOCH_BEGIN, epoch=1, step=0, epoch_step=0)
    assert first == expected, f"the first event is {first}"
    step = (epoch - 1) * per_epoch + done
    event = subject.Event.STEP_END if done else subject.Event.EPOCH_BEGIN
    now = subject.Position(event=event, epoch=epoch, step=step, epoch_step=done)
    after = subject.following(schedule, now, subject.Action.CONTINUE)
    if done == per_epoch:
        assert after.event is subject.Event.EPOCH_END, f"{after.event.name} follows {step} of {total} steps"
        beyond = subject.following(schedule, after, subject.Action.CONTINUE)
        ended = epoch == epochs
        expected = subject.Event.TRAIN_END if ended else subject.Event.EPOCH_BEGIN
        assert beyond.event is expected, f"{beyond.event.name} follows the epoch that ends with {step} of {total} steps"
        assert (beyond.step, beyond.epoch) == (step, epoch + (not ended)), f"then comes {beyond}"
    else:
        assert after.event is subject.Event.STEP_END, f"{after.event.name} follows {step} of {total} steps"
        assert (after.step, after.epoch, after.epoch_step) == (step + 1, epoch, done + 1), f"then comes {after}"
