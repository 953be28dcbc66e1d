"""Wrong versions of feature matching: the faults that the contract declares.

`original` is the replaced function.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor


def layers_clamped(original: Any, student: Any, teacher: Any, scored: Tensor, layers: Any, **settings: Any) -> Any:
    """Take the last layer for one that does not exist."""
    clamped = [(min(i, len(student) - 1), min(j, len(teacher) - 1)) for i, j in layers]
    return original(student, teacher, scored, layers=clamped, **settings)


def teacher_not_detached(original: Any, student: Any, teacher: Any, *others: Any, **settings: Any) -> Any:
    """Give the teacher a gradient."""
    loss = original(student, teacher, *others, **settings)
    return replace(loss, sum=loss.sum + sum(0 * x.nan_to_num().double().sum() for x in teacher))
