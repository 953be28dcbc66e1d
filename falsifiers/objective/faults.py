"""Wrong versions of public functions: the faults that the contract declares."""

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
