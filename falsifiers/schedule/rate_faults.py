"""Wrong learning rates. `original` is `reference_trainer.plan.rates.learning_rate`."""

from __future__ import annotations

from typing import Any


def cosine_of_another_horizon(original: Any, step: int, *, warmup: int, **rest: Any) -> Any:
    return original(max(step, 2 * step - warmup), warmup=warmup, **rest)


def warmup_off_by_one(original: Any, step: int, **rest: Any) -> Any:
    return original(step - 1, **rest)


def decay_over_the_whole_run(
    original: Any, step: int, *, total: int, shape: str = "cosine", decay: Any = None, **rest: Any
) -> Any:
    if shape == "wsd" and decay is not None:
        step = min(step, max(0, total - decay) + (step - max(0, total - decay)) * min(decay, total) // total)
    return original(step, total=total, shape=shape, decay=decay, **rest)
