"""Distillation losses that accept what they should refuse. `original` is the replaced function."""

from __future__ import annotations

from dataclasses import replace
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


def labels_compared_before_widening(
    original: Any, student: Tensor, teacher: Tensor, labels: Tensor, **settings: Any
) -> Any:
    """Return the loss whose mask is made in the labels' own dtype: in uint8, -100 is token 156."""
    ignored = settings.get("ignore_index", IGNORED)
    return original(student, teacher, labels.long().where(labels != ignored, ignored), **settings)


def invalid_logits_replaced(original: Any, student: Tensor, teacher: Tensor, *others: Tensor, **settings: Any) -> Any:
    """Return the loss with finite numbers in the place of NaN and infinities."""
    return original(student.nan_to_num(), teacher.nan_to_num(), *others, **settings)


def number_read(original: Any, *tensors: Tensor, **options: Any) -> Any:
    """Return the rows after reading their count from the device."""
    rows = original(*tensors, **options)
    assert int(rows.count) >= 0
    return rows


def fault_one_row_early(original: Any, *tensors: Any, **options: Any) -> Any:
    """Return the rows with the fault of the row before."""
    rows = original(*tensors, **options)
    return replace(rows, fault=(rows.fault - 4).clamp_min(0))
