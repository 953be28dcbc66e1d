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


def nats_in_float32(original: Any, *tensors: Any, **options: Any) -> Any:
    """Return the rows with their cross-entropies rounded to float32."""
    rows = original(*tensors, **options)
    return replace(rows, cross_entropy_P=rows.cross_entropy_P.float().double())


def kl_of_the_temperature(original: Any, *tensors: Any, **options: Any) -> Any:
    """Return the rows with the divergence at the temperature in the place of that at 1."""
    rows = original(*tensors, **options)
    return replace(rows, kl_at_1_P=rows.kl_P)


def normalised_by_the_kernel(original: Any, student: Tensor, *others: Tensor, **options: Any) -> Any:
    """Return the rows whose cross-entropy takes the probabilities of torch.softmax as they are."""
    rows = original(student, *others, **options)
    total_P = student.softmax(-1).flatten(0, 1).sum(-1, dtype=torch.float64)
    return replace(rows, cross_entropy_P=rows.cross_entropy_P - total_P.log())


def infinity_times_zero(original: Any, rows: Any, weights: Any) -> Any:
    """Return the weighted sum whose terms of weight 0 are multiplied by 0."""
    soft = weights.kd_weight * weights.temperature**2 * rows.divergence_P
    return (weights.ce_weight * rows.cross_entropy_P + soft).sum()


def scale_inverted(original: Any, *tensors: Any, scale: Any = None, **options: Any) -> Any:
    """Return the gradient divided by the scale."""
    return original(*tensors, scale=None if scale is None else 1 / scale, **options)


def walked_twice(original: Any, *tensors: Any, **options: Any) -> Any:
    """Walk over the rows a second time."""
    original(*tensors, **options)
    return original(*tensors, **options)


def two_rows_at_least(original: Any, *arguments: Any) -> int:
    """Return blocks of at least two rows, which a large vocabulary does not fit into the cache."""
    return max(int(original(*arguments)), 2)
