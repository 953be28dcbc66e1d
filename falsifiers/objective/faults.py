"""Wrong versions of public functions: the faults that the contract `objective` declares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any


def first_value_for_ever(original: Any, objective: Any, step: int, total: int) -> Any:
    """Use the values of the first step in every step."""
    return original(objective, 1, total)


def horizon_of_the_limit(original: Any, objective: Any, step: int, total: int) -> Any:
    """Reach the last value in half of the run."""
    return original(objective, min(step, total // 2 + 1), total // 2 + 1)


def temperature_alone(original: Any, objective: Any, step: int, total: int) -> Any:
    """Anneal the temperature, and leave the weights at their first values."""
    first, now = original(objective, 1, total), original(objective, step, total)
    return replace(first, temperature=now.temperature)


def always_forward(original: Any, objective: Any, step: int, total: int) -> Any:
    """Minimise forward KL whatever was chosen."""
    return replace(original(objective, step, total), divergence="forward_kl")


def fault_forgotten(original: Any, fault: int, labels: Any, vocabulary: int) -> None:
    """Raise nothing for a deferred fault."""


def update_kept(original: Any, update: Any, position: Any, rate: float, *hooks: Any) -> Any:
    """Step the optimizer although the logits were NaN."""
    step = update.optimizer.step

    def stepped(*arguments: Any) -> Any:
        update.optimizer.found_inf.zero_()
        return step(*arguments)

    update.optimizer.step = stepped
    try:
        return original(update, position, rate, *hooks)
    finally:
        update.optimizer.step = step


def warmup_ignored(original: Any, annealed: Any, step: int, total: int) -> float:
    """Go to the end from the first step on."""
    return original(replace(annealed, warmup=0), step, total)


def end_of_zero_ignored(original: Any, annealed: Any, step: int, total: int) -> float:
    """Keep a value that is to fall to 0."""
    return original(annealed, step, total) if annealed.end else annealed.start


def warmup_after_the_start(original: Any, annealed: Any, step: int, total: int) -> float:
    """Rise for a step more."""
    longer = annealed.warmup + 1 if annealed.warmup else 0
    return original(replace(annealed, warmup=longer), step, total)


def always_deferred(original: Any, *given: Any, deferred: bool = False, **settings: Any) -> Any:
    """Defer errors, whatever the optimizer."""
    return original(*given, deferred=True, **settings)
