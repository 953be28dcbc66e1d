"""Wrong versions of public functions: the faults that the contract declares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any


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


def multiples_saved_only(original: Any, schedule: Any, step: int) -> Any:
    """Do not save the last step."""
    return original(schedule, step) and step % schedule.save_every == 0
