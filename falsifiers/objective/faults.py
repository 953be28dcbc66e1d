"""Wrong versions of an objective and its values: the faults that the contract declares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any


def first_value_for_ever(original: Any, objective: Any, step: int, total: int) -> Any:
    """Use the values of the first step in every step."""
    return original(objective, 1, total)


def horizon_of_the_limit(original: Any, objective: Any, step: int, total: int) -> Any:
    """Reach the last value in half of the run."""
    return original(objective, min(step, total // 2 + 1), total // 2 + 1)


def always_forward(original: Any, objective: Any, step: int, total: int) -> Any:
    """Minimise forward KL whatever was chosen."""
    return replace(original(objective, step, total), divergence="forward_kl")


def counted_from_zero(original: Any, annealed: Any, step: int, total: int) -> Any:
    """Divide the step by the number of steps, as if steps counted from 0."""
    return original(annealed, step, total + 1)


def shape_unchecked(original: Any, annealed: Any) -> None:
    """Accept every shape, with and without an end, and treat what does not fit as constant."""
    try:
        original(annealed)
    except ValueError as error:
        if "shape" not in str(error):
            raise


def zero_at_the_start(original: Any, annealed: Any) -> bool:
    """Decide by the start alone that a term is never needed."""
    return bool(annealed.start == 0)
