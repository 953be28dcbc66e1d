"""Predicates over bounded boxes: the schedule of a run, in pure integers.

The subject has the public names of `training.schedule`, and `SettingError`. Expectations are closed forms.
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


def prove_each_micro_batch_is_taken_once(subject: Any, micro_batches: int, accumulation: int) -> None:
    """Steps take the micro-batches 1..M of an epoch once, in order, `accumulation` at a time, the last the rest."""
    steps = subject.windows(micro_batches, accumulation)
    assert (steps - 1) * accumulation < micro_batches <= steps * accumulation, (
        f"{steps} steps of {accumulation} are planned for {micro_batches} micro-batches"
    )
    schedule = subject.Schedule(epochs=1, steps_per_epoch=steps, accumulation=accumulation, micro_batches=micro_batches)
    taken = [list(subject.micro_batches(schedule, step)) for step in range(1, steps + 1)]
    every = [number for numbers in taken for number in numbers]
    assert every == list(range(1, micro_batches + 1)), (
        f"steps of {accumulation} take the micro-batches {taken}; expected 1..{micro_batches}, each once"
    )
    full = [len(numbers) for numbers in taken[:-1]]
    assert full == [accumulation] * (steps - 1), f"the steps before the last take {full} micro-batches"
    unlimited = subject.Schedule(epochs=1, steps_per_epoch=steps, accumulation=accumulation)
    last = list(subject.micro_batches(unlimited, steps))
    expected = list(range((steps - 1) * accumulation + 1, steps * accumulation + 1))
    assert last == expected, (
        f"step {steps} takes {last} if the epoch has as many as its steps take; expected {expected}"
    )


def prove_reads(subject: Any, log_every: int, step: int, event: int) -> None:
    """Sums are read at every logged step, every 256th, and at the end of an epoch and of the run; nowhere else."""
    schedule = subject.Schedule(epochs=1, steps_per_epoch=2000, log_every=log_every)
    kind = list(subject.Event)[event]
    logged = log_every > 0 and step // log_every * log_every == step
    expected = kind.name in ("EPOCH_END", "TRAIN_END") or (kind.name == "STEP_END" and (logged or step & 255 == 0))
    seen = subject.is_read(schedule, subject.Position(event=kind, epoch=1, step=step, epoch_step=step))
    assert seen is expected, f"is_read is {seen} at {kind.name} of step {step}, logged every {log_every}"


def prove_saves(subject: Any, save_every: int, log_every: int, step: int, event: int) -> None:
    """The run is saved after every step that is a multiple of `save_every`, and its sums are read before."""
    schedule = subject.Schedule(epochs=1, steps_per_epoch=2000, log_every=log_every, save_every=save_every)
    kind = list(subject.Event)[event]
    position = subject.Position(event=kind, epoch=1, step=step, epoch_step=step)
    expected = kind.name == "STEP_END" and step in range(save_every, step + 1, save_every or 2000)[save_every == 0 :]
    seen = subject.is_saved(schedule, position)
    assert seen is expected, f"is_saved is {seen} at {kind.name} of step {step}, saved every {save_every}"
    read = subject.is_read(schedule, position)
    logged = log_every > 0 and step // log_every * log_every == step
    due = kind.name in ("EPOCH_END", "TRAIN_END") or (kind.name == "STEP_END" and (logged or expected))
    assert read is due, f"is_read is {read} at {kind.name} of step {step}, saved every {save_every}"


WRONG = (0, -1, True, 1.5, "3", None)


def prove_lengths_are_positive_integers(subject: Any, field: int, value: int) -> None:
    """Lengths are positive integers, intervals may be 0; anything else is refused with its name and value."""
    names = ("epochs", "steps_per_epoch", "limit", "accumulation", "micro_batches", "log_every", "save_every")
    name, wrong = names[field], WRONG[value]
    accepted = (wrong is None and name in ("limit", "micro_batches")) or (name.endswith("_every") and wrong == 0)
    said = _refusal(subject, {"epochs": 1, "steps_per_epoch": 1, name: wrong})
    expected = "" if accepted else f"{name} is {wrong!r}"
    assert said.startswith(expected) and bool(said) == bool(expected), (
        f"Schedule({name}={wrong!r}) is refused with {said!r}; expected {expected!r}"
    )


def prove_micro_batches_fit_the_steps(subject: Any, micro_batches: int, accumulation: int, steps: int) -> None:
    """Micro-batches that do not make exactly the steps of an epoch are refused, with the number that they make."""
    lengths = {"epochs": 1, "steps_per_epoch": steps, "accumulation": accumulation, "micro_batches": micro_batches}
    said, made = _refusal(subject, lengths), (micro_batches + accumulation - 1) // accumulation
    assert bool(said) == (made != steps), f"Schedule({lengths}) is refused with {said!r}; the steps are {made}"
    assert not said or said.endswith(f"expected {made}"), f"{said!r} does not name the {made} steps"


def _refusal(subject: Any, lengths: dict[str, Any]) -> str:
    """Return the message of a refused schedule; empty if it is accepted."""
    try:
        subject.Schedule(**lengths)
    except subject.SettingError as error:
        return str(error)
    return ""
