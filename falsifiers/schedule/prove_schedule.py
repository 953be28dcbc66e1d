"""Proofs of the schedule of a run and of its learning rates."""

import math
from typing import Any


def prove_stop_takes_no_further_step(subject: Any, epochs: int, per_epoch: int, limit: int, events: int) -> None:
    """STOP as the answer to an event, `events` after the first: no step follows, and an open epoch is closed."""
    every = {"log_every": 1, "eval_every": 1, "save_every": 1}
    schedule = subject.Schedule(epochs=epochs, steps_per_epoch=per_epoch, limit=limit, **every)
    position = subject.START
    for _ in range(events):
        if position is not None:
            position = subject.next_position(schedule, position, subject.Action.CONTINUE)
    if position is None or position.event is subject.Event.TRAIN_END:
        return  # the run has ended
    followed, after = [], subject.next_position(schedule, position, subject.Action.STOP)
    while after is not None and len(followed) < 7:
        followed.append(after.event.name)
        assert after.step == position.step, f"{after} follows STOP at {position}"
        after = subject.next_position(schedule, after, subject.Action.CONTINUE)
    name = position.event.name
    rest = ["LOG", "EVALUATE", "SAVE", "STEP_END"]
    rest = rest if name == "OPTIMIZER_STEP" else rest[rest.index(name) + 1 :] if name in rest else []
    expected = [*rest, *["EPOCH_END"] * (name not in ("TRAIN_BEGIN", "EPOCH_END")), "TRAIN_END"]
    assert followed == expected, f"STOP at {position} is followed by {followed}; expected {expected}"


def prove_each_event_follows(subject: Any, epochs: int, per_epoch: int, epoch: int, done: int) -> None:
    """From any position of any run, the next event leads to exactly epochs * per_epoch steps.

    By induction over events this holds for runs of any length.
    """
    schedule, total = subject.Schedule(epochs=epochs, steps_per_epoch=per_epoch), epochs * per_epoch
    assert schedule.total_steps == total, f"{schedule.total_steps} steps are planned; expected {total}"
    first = subject.next_position(schedule, subject.START, subject.Action.CONTINUE)
    expected = subject.Position(event=subject.Event.EPOCH_BEGIN, epoch=1, step=0, epoch_step=0)
    assert first == expected, f"the first event is {first}"
    step = (epoch - 1) * per_epoch + done
    event = subject.Event.STEP_END if done else subject.Event.EPOCH_BEGIN
    now = subject.Position(event=event, epoch=epoch, step=step, epoch_step=done)
    after = subject.next_position(schedule, now, subject.Action.CONTINUE)
    if done == per_epoch:
        assert after.event is subject.Event.EPOCH_END, f"{after.event.name} follows {step} of {total} steps"
        beyond = subject.next_position(schedule, after, subject.Action.CONTINUE)
        ended = epoch == epochs
        expected = subject.Event.TRAIN_END if ended else subject.Event.EPOCH_BEGIN
        assert beyond.event is expected, f"{beyond.event.name} follows the epoch that ends with {step} of {total} steps"
        assert (beyond.step, beyond.epoch) == (step, epoch + (not ended)), f"then comes {beyond}"
    else:
        assert after.event is subject.Event.STEP_BEGIN, f"{after.event.name} follows {step} of {total} steps"
        assert (after.step, after.epoch, after.epoch_step) == (step, epoch, done), f"then comes {after}"
        taken = subject.next_position(schedule, after, subject.Action.CONTINUE)
        assert taken.event is subject.Event.OPTIMIZER_STEP, f"{taken.event.name} follows the begin of step {step + 1}"
        assert (taken.step, taken.epoch, taken.epoch_step) == (step + 1, epoch, done + 1), f"then comes {taken}"
        ended = subject.next_position(schedule, taken, subject.Action.CONTINUE)
        expected = subject.Position(event=subject.Event.STEP_END, epoch=epoch, step=step + 1, epoch_step=done + 1)
        assert ended == expected, f"{taken} is followed by {ended}"


def prove_rest_of_a_step(
    subject: Any, log_every: int, eval_every: int, save_every: int, step: int, answer: int
) -> None:
    """After the update come LOG, EVALUATE and SAVE where they are due, and STEP_END; an answer is carried out then."""
    every = {"log_every": log_every, "eval_every": eval_every, "save_every": save_every}
    schedule = subject.Schedule(epochs=2, steps_per_epoch=2000, **every)
    position = subject.Position(event=subject.Event.OPTIMIZER_STEP, epoch=1, step=step, epoch_step=step)
    logged, evaluated, saved = (n > 0 and step // n * n == step for n in (log_every, eval_every, save_every))
    expected = ["LOG"] * logged + ["EVALUATE"] * evaluated + ["SAVE"] * (evaluated or saved) + ["STEP_END"]
    action, seen = subject.Action(answer), list[str]()
    while position.event is not subject.Event.STEP_END:
        position = subject.next_position(schedule, position, action)
        action = subject.Action.CONTINUE
        seen.append(position.event.name)
        assert (position.step, position.epoch_step) == (step, step), f"in step {step} comes {position}"
    assert seen == expected, f"step {step} with {every}: the update is followed by {seen}; expected {expected}"
    after = subject.next_position(schedule, position, subject.Action.CONTINUE)
    wanted = "EPOCH_END" if answer else "STEP_BEGIN"
    assert after.event.name == wanted, f"{subject.Action(answer).name} after the update: then comes {after}"
    closed = subject.next_position(schedule, subject.next_position(schedule, position, subject.Action.SKIP), action)
    stopped = subject.next_position(schedule, after, action).event.name if answer else "EPOCH_BEGIN"
    wanted = "TRAIN_END" if answer == 2 else "EPOCH_BEGIN"
    assert (stopped, closed.skipping) == (wanted, False), f"then comes {stopped}, and after SKIP {closed}"


def prove_each_micro_batch_is_taken_once(subject: Any, micro_batches: int, accumulation: int) -> None:
    """Steps take the micro-batches 1..M of an epoch once, in order, `accumulation` at a time, the last the rest."""
    steps = subject.count_steps(micro_batches, accumulation)
    assert (steps - 1) * accumulation < micro_batches <= steps * accumulation, (
        f"{steps} steps of {accumulation} are planned for {micro_batches} micro-batches"
    )
    schedule = subject.Schedule(epochs=1, steps_per_epoch=steps, accumulation=accumulation, micro_batches=micro_batches)
    taken = [list(subject.micro_batches(schedule, step)) for step in range(1, steps + 1)]
    every = [number for numbers in taken for number in numbers]
    assert every == list(range(1, micro_batches + 1)), f"{accumulation} of {micro_batches} a step: {taken}"
    full = [len(numbers) for numbers in taken[:-1]]
    assert full == [accumulation] * (steps - 1), f"the steps before the last take {full} micro-batches"
    unlimited = subject.Schedule(epochs=1, steps_per_epoch=steps, accumulation=accumulation)
    last = list(subject.micro_batches(unlimited, steps))
    expected = list(range((steps - 1) * accumulation + 1, steps * accumulation + 1))
    assert last == expected, f"step {steps}, the last of full ones, takes {last}; expected {expected}"


def prove_saves(subject: Any, save_every: int, step: int, limit: int) -> None:
    """A checkpoint is due in every multiple of `save_every`, and in the last step: 12, or a limit (0: none)."""
    schedule = subject.Schedule(epochs=2, steps_per_epoch=6, limit=limit or None, save_every=save_every)
    last = 12 if limit == 0 or limit > 12 else limit
    due = [*range(save_every, 13, save_every), last] if save_every else []
    seen = subject.is_saved(schedule, step)
    case = f"step {step} of 12, saved every {save_every}, with the limit {limit or None}"
    assert seen is (step in due), f"is_saved is {seen} at {case}"


SHAPES = ("cosine", "linear", "constant", "wsd")
PEAK, END = 3.0, 0.25
STEEPEST = {"cosine": math.pi / 2, "linear": 1.0, "constant": 0.0, "wsd": 1.0}
"""The largest slope of each shape, from 1 to 0 over a way of 1."""
ROUNDING = 1e-12


def prove_ends_and_no_jump(subject: Any, shape: int, warmup: int, total: int, decay: int) -> None:
    """decay: 0 for the default, a fifth of the run, rounded up."""
    name = SHAPES[shape]
    length = decay or -(-total // 5)
    options = {"peak": PEAK, "warmup": warmup, "total": total, "shape": name, "end": END, "decay": decay or None}
    rates = [subject.learning_rate(step, **options) for step in range(1, total + 3)]
    where = f"{name} of {total} steps, {warmup} of them warm-up, decay {decay}: {rates}"
    if warmup:
        assert math.isclose(rates[0], PEAK / warmup, rel_tol=ROUNDING), f"step 1 is not peak / warmup: {where}"
    if 1 <= warmup < total:
        assert rates[warmup - 1] == PEAK, f"step {warmup} has not the peak: {where}"
    if warmup < total:
        last = PEAK if name == "constant" else PEAK * END
        ends = [math.isclose(rate, last, rel_tol=ROUNDING) for rate in rates[total - 1 :]]
        assert all(ends), f"the last step and those after it have not {last}: {where}"
    way = min(length, total - warmup) if name == "wsd" else total - warmup
    fall = STEEPEST[name] * PEAK * (1 - END) / max(1, way)
    for before, after in zip(rates[max(0, warmup - 1) :], rates[max(1, warmup) :], strict=False):
        assert -ROUNDING <= before - after <= fall + ROUNDING, f"from {before} to {after}, at most {fall}: {where}"
