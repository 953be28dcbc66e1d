"""Distillation losses that round their sums and counts. `original` is the replaced function."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor


def sum_in_float32(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    """Return the loss with a float32 sum."""
    loss = original(*tensors, **settings)
    return replace(loss, sum=loss.sum.float())


def sum_rounded_to_float32(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    """Return the loss whose sum is accumulated in float32 and converted afterwards."""
    loss = original(*tensors, **settings)
    return replace(loss, sum=loss.sum.float().double())


def weights_in_float32(original: Any, *tensors: Tensor, ce_weight: float, kd_weight: float, **rest: Any) -> Any:
    """Return the loss with both weights rounded to float32."""
    ce, kd = torch.tensor([ce_weight, kd_weight], dtype=torch.float32).tolist()
    return original(*tensors, ce_weight=ce, kd_weight=kd, **rest)


def counted_in_half_precision(original: Any, student: Tensor, *others: Tensor, **settings: Any) -> Any:
    """Return the loss whose positions are counted in the dtype of the logits."""
    loss = original(student, *others, **settings)
    return replace(loss, count=loss.count.to(student.dtype).long())


def counted_in_float32(original: Any, *tensors: Tensor, **settings: Any) -> Any:
    """Return the loss whose positions are counted in float32."""
    loss = original(*tensors, **settings)
    return replace(loss, count=loss.count.float().long())
