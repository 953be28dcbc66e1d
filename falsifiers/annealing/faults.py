"""Wrong versions of a value that changes during a run: the faults that the contract `annealing` declares.

`original` is the replaced method.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any


def counted_from_zero(original: Any, annealed: Any, step: int, total: int) -> Any:
    """Divide the step by the number of steps, as if steps counted from 0."""
    return original(annealed, step, total + 1)


def cosine_is_linear(original: Any, annealed: Any, step: int, total: int) -> Any:
    """Treat a cosine as a straight line."""
    return original(replace(annealed, shape="linear") if annealed.shape == "cosine" else annealed, step, total)


def cosine_not_halved(original: Any, annealed: Any, step: int, total: int) -> Any:
    """Multiply the whole difference by the cosine, so that the way leads beyond the end."""
    if annealed.shape != "cosine" or total == 1:
        return original(annealed, step, total)
    return annealed.end + (annealed.start - annealed.end) * math.cos(math.pi * (min(step, total) - 1) / (total - 1))


def beyond_the_end(original: Any, annealed: Any, step: int, total: int) -> Any:
    """Continue the line after the last step."""
    if annealed.end is None or annealed.warmup or total == 1:
        return original(annealed, step, total)
    return annealed.start + (annealed.end - annealed.start) * (step - 1) / (total - 1)


def ends_with_rounding(original: Any, annealed: Any, step: int, total: int) -> Any:
    """Add the whole difference to the start in the last step."""
    if annealed.end is None or step < total or total <= max(1, annealed.warmup):
        return original(annealed, step, total)
    return annealed.start + (annealed.end - annealed.start)


def falling_only(original: Any, annealed: Any, step: int, total: int) -> Any:
    """Keep a value that should rise at its start."""
    return min(original(annealed, step, total), float(annealed.start))


def one_step_ends(original: Any, annealed: Any, step: int, total: int) -> Any:
    """Give the only step of a run the end."""
    return float(annealed.end) if total == 1 and annealed.end is not None else original(annealed, step, total)


def warmup_from_zero(original: Any, annealed: Any, step: int, total: int) -> Any:
    """Give the first step of a warm-up the value 0."""
    warming = step <= min(annealed.warmup, total)
    return annealed.start * (step - 1) / annealed.warmup if warming else original(annealed, step, total)


def horizon_without_the_warmup(original: Any, annealed: Any, step: int, total: int) -> Any:
    """Start the way to the end in step 1, hidden by the warm-up at first."""
    plain = replace(annealed, warmup=0)
    return original(annealed if step < annealed.warmup else plain, step, total)


def shape_unchecked(original: Any, annealed: Any) -> None:
    """Accept every shape, with and without an end, and treat what does not fit as constant."""
    try:
        original(annealed)
    except ValueError as error:
        if "shape" not in str(error):
            raise


def end_unchecked(original: Any, annealed: Any) -> None:
    """Check the start only."""
    if annealed.end is None:
        original(annealed)
    else:
        original(replace(annealed, end=None, shape="constant"))


def zero_at_the_start(original: Any, annealed: Any) -> bool:
    """Decide by the start alone that a term is never needed."""
    return bool(annealed.start == 0)


def step_zero_accepted(original: Any, annealed: Any, step: int, total: int) -> Any:
    """Give step 0 the value of the first step."""
    return original(annealed, max(step, 1), total)
