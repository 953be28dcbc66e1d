"""Predicates over bounded boxes: the number of steps of a run, in pure integers.

The subject has `Schedule`, `START`, `Event`, `Action` and `next_position`, as `training.schedule` does.
Expectations are closed forms.
"""

from typing import Any

from reference_trainer.errors import SettingError


def prove_early_break_is_exact(subject: Any, limit: int, per_epoch: int, epochs: int) -> None:
    """A run takes min(N, epochs * per_epoch) steps; every epoch has a step and is closed before the next begins."""
    schedule = subject.Schedule(epochs=epochs, steps_per_epoch=per_epoch, limit=limit)
    total = min(limit, epochs * per_epoch)
    assert schedule.total_steps == total, f"{schedule.total_steps} steps are planned; expected {total}"
    sizes, closed, event, position = list[int](), 0, subject.Event, subject.START
    while position.event is not event.TRAIN_END:
        if position.event is event.STEP_END:
            assert position.step <= total, f"the run continues after step {total}"
            sizes[-1] += 1
        elif position.event is event.EPOCH_BEGIN:
            assert closed == len(sizes), f"epoch {closed + 1} begins before epoch {closed} is closed"
            sizes.append(0)
        else:
            closed += position.event is event.EPOCH_END
        position = subject.next_position(schedule, position, subject.Action.CONTINUE)
    whole, rest = divmod(total, per_epoch)
    expected = [per_epoch] * whole + [rest] * (rest > 0)
    assert sizes == expected, f"the epochs have {sizes} steps; expected {expected}"
    assert closed == len(sizes), f"{closed} of {len(sizes)} epochs are closed"


def prove_no_steps_are_refused(subject: Any, limit: int, per_epoch: int, epochs: int) -> None:
    """A schedule with zero or negative steps is refused with the number in the message."""
    smallest = min(limit, per_epoch, epochs)
    try:
        schedule = subject.Schedule(epochs=epochs, steps_per_epoch=per_epoch, limit=limit)
    except SettingError as error:
        wrong = [number for number in (epochs, per_epoch, limit) if number < 1]
        assert wrong and repr(wrong[0]) in str(error), f"N = {limit}, {epochs} x {per_epoch} is refused: {error}"
        return
    assert smallest >= 1, f"{schedule} is accepted"
    assert schedule.total_steps >= 1, f"{schedule} has {schedule.total_steps} steps"
