"""Distillation losses that round their sums and counts. `original` is the replaced function."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor


def counted_in_half_precision(original: Any, student: Tensor, *others: Tensor, **settings: Any) -> Any:
    """Return the loss whose positions are counted in the dtype of the logits."""
    loss = original(student, *others, **settings)
    return replace(loss, count=loss.count.to(student.dtype).long())
