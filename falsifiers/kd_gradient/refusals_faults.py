"""Distillation losses that accept what they should refuse. `original` is the replaced function."""

from __future__ import annotations

from typing import Any

from torch import Tensor

IGNORED = -100


def vocabularies_unchecked(original: Any, student: Tensor, teacher: Tensor, *others: Tensor, **settings: Any) -> Any:
    """Return the loss over the common part of two vocabularies."""
    V = min(student.shape[-1], teacher.shape[-1])
    return original(student[..., :V], teacher[..., :V], *others, **settings)


def temperature_raised(original: Any, *tensors: Tensor, temperature: Any, **rest: Any) -> Any:
    """Return the loss at the smallest valid temperature in the place of a smaller one."""
    return original(*tensors, temperature=max(temperature, 1e-4), **rest)


def labels_outside_left_out(original: Any, student: Tensor, teacher: Tensor, labels: Tensor, **settings: Any) -> Any:
    """Return the loss to which labels beyond the vocabulary add nothing."""
    ignored = settings.get("ignore_index", IGNORED)
    return original(student, teacher, labels.where(labels < student.shape[-1], ignored), **settings)
