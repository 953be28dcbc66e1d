"""Distillation losses and gradients that depend on more than their arguments, or change them.

`original` is the replaced function.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor


def teacher_not_detached(original: Any, student: Tensor, teacher: Tensor, *others: Tensor, **settings: Any) -> Any:
    """Return the loss with the teacher in its graph."""
    loss = original(student, teacher, *others, **settings)
    return replace(loss, sum=loss.sum + 0 * teacher.double().sum())
