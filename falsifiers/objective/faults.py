"""Wrong versions of an objective and its values: the faults that the contract declares."""

from dataclasses import replace
from typing import Any


def first_value_for_ever(original: Any, objective: Any, step: int, total: int) -> Any:
    return original(objective, 1, total)


def horizon_of_the_limit(original: Any, objective: Any, step: int, total: int) -> Any:
    return original(objective, min(step, total // 2 + 1), total // 2 + 1)


def always_forward(original: Any, objective: Any, step: int, total: int) -> Any:
    return replace(original(objective, step, total), divergence="forward_kl")


def counted_from_zero(original: Any, annealed: Any, step: int, total: int) -> Any:
    return original(annealed, step, total + 1)


def shape_unchecked(original: Any, annealed: Any) -> None:
    try:
        original(annealed)
    except ValueError as error:
        if "shape" not in str(error):
            raise


def zero_at_the_start(original: Any, annealed: Any) -> bool:
    return bool(annealed.start == 0)


def infinite_loss_counted(rows: Any, weights: Any, feature: Any = None) -> Any:
    return rows.fault
