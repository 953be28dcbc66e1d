"""Wrong versions of public functions: the faults that the contract `schedule` declares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any


def last_batch_dropped(original: Any, schedule: Any, position: Any, action: Any) -> Any:
    """End every epoch one step early."""
    last = position.epoch_step == schedule.steps_per_epoch - 1 and position.event.name == "STEP_END"
    return original(schedule, position, max(action, type(action).SKIP) if last else action)


def one_epoch_more(original: Any, schedule: Any, position: Any, action: Any) -> Any:
    """Begin one more epoch after the last."""
    return original(replace(schedule, epochs=schedule.epochs + 1), position, action)


def stop_ends_the_epoch_only(original: Any, schedule: Any, position: Any, action: Any) -> Any:
    """End the epoch at STOP, and begin the next one."""
    return original(schedule, position, type(action).SKIP if action.name == "STOP" else action)


def open_epoch_left_open(original: Any, schedule: Any, position: Any, action: Any) -> Any:
    """End the run at STOP without the end of its epoch."""
    after = original(schedule, position, action)
    left = after is not None and after.stopping and after.event.name == "EPOCH_END"
    return replace(after, event=type(after.event).TRAIN_END) if left else after


def cosine_of_another_horizon(original: Any, step: int, *, peak: float, warmup: int, total: int) -> Any:
    """Let the rate fall twice as fast."""
    return original(max(step, 2 * step - warmup), peak=peak, warmup=warmup, total=total)


def partial_window_dropped(original: Any, micro_batches: int, accumulation: int) -> int:
    """Plan full windows only."""
    full: int = original(micro_batches - accumulation + 1, accumulation)
    return max(full, 1)


def window_beyond_the_epoch(original: Any, schedule: Any, epoch_step: int) -> range:
    """Fill the last window with micro-batches that the epoch does not have."""
    return range(original(schedule, epoch_step).start, schedule.accumulation * epoch_step + 1)


def answer_in_a_step_lost(original: Any, schedule: Any, position: Any, action: Any) -> Any:
    """Carry out the answer to on_step_end alone."""
    after = original(schedule, position, action)
    inside = position.event.name in ("OPTIMIZER_STEP", "LOG", "EVALUATE", "SAVE")
    return replace(after, skipping=False, stopping=False) if inside else after


def saved_before_it_is_evaluated(original: Any, schedule: Any, position: Any, action: Any) -> Any:
    """Save a step before its evaluation."""
    after = original(schedule, position, action)
    event = {"EVALUATE": "SAVE", "SAVE": "EVALUATE"}.get(after.event.name) if after is not None else None
    both = schedule.eval_every and after is not None and after.step % schedule.eval_every == 0
    return replace(after, event=type(after.event)[event]) if event and both else after


def read_when_logged_only(original: Any, position: Any) -> bool:
    """Read the sums at logged steps and ends only, so that they pile up on the device."""
    return bool(original(position)) and position.event.name != "STEP_END"


def read_at_every_step(original: Any, position: Any) -> bool:
    """Read the sums at every step."""
    return bool(original(position)) or position.event.name == "STEP_END"


def first_step_saved_too(original: Any, schedule: Any, step: int) -> Any:
    """Count saved steps from 0."""
    return original(schedule, step - 1)


def multiples_saved_only(original: Any, schedule: Any, step: int) -> Any:
    """Do not save the last step."""
    return original(schedule, step) and step % schedule.save_every == 0


def saved_before_it_is_read(original: Any, position: Any) -> Any:
    """Do not read the sums before they are saved."""
    return original(position) and position.event.name != "SAVE"
