"""Wrong versions of feature matching: the faults that the contract `feature-isolation` declares.

`original` is the replaced function.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from falsifiers.feature_matching.faults import with_distance


def layers_clamped(original: Any, student: Any, teacher: Any, scored: Tensor, layers: Any, **settings: Any) -> Any:
    """Take the last layer for one that does not exist."""
    clamped = [(min(i, len(student) - 1), min(j, len(teacher) - 1)) for i, j in layers]
    return original(student, teacher, scored, layers=clamped, **settings)


def teacher_not_detached(original: Any, student: Any, teacher: Any, *others: Any, **settings: Any) -> Any:
    """Give the teacher a gradient."""
    loss = original(student, teacher, *others, **settings)
    return replace(loss, sum=loss.sum + sum(0 * x.nan_to_num().double().sum() for x in teacher))


def width_of_one_broadcast(original: Any, student: Any, teacher: Any, *others: Any, **settings: Any) -> Any:
    """Compare every feature of one model with the only feature of the other."""
    widths = {x.shape[-1] for x in (*student, *teacher) if x.dim() == 3}
    if len(widths) == 2 and min(widths) == 1:
        student, teacher = ([x.expand(*x.shape[:-1], max(widths)) for x in states] for states in (student, teacher))
    return original(student, teacher, *others, **settings)


def labels_for_a_mask(original: Any, student: Any, teacher: Any, scored: Tensor, **settings: Any) -> Any:
    """Read every number but 0 as scored, so that labels score padding of -100 and leave token 0 out."""
    return original(student, teacher, scored.bool(), **settings)


def weight_on_the_default_device(original: Any, student: Any, teacher: Any, scored: Tensor, **settings: Any) -> Any:
    """Add a weight that is made on the default device, in the default dtype."""
    loss = original(student, teacher, scored, **settings)
    return replace(loss, sum=loss.sum * torch.ones(1)[0])


def one_product(original: Any, *tensors: Any, **settings: Any) -> Any:
    """Sum the products of a cosine by a matrix product, in half precision under autocast."""

    def distance(student: Tensor, teacher: Tensor) -> Tensor:
        units = [x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(1e-4) for x in (student, teacher)]
        gap = units[0] - units[1]
        return torch.einsum("nw,nw->n", gap, gap).double() / 2

    return with_distance(original, *tensors, cosine=distance, **settings)


def indexed_by_the_mask(original: Any, student: Any, teacher: Any, scored: Tensor, **settings: Any) -> Any:
    """Index the student's states by the mask itself."""
    loss = original(student, teacher, scored, **settings)
    return replace(loss, sum=loss.sum + sum((x[scored] - x.detach()[scored]).double().sum() for x in student))


def moved_to_the_cpu(original: Any, *tensors: Any, **settings: Any) -> Any:
    """Count on the CPU."""
    loss = original(*tensors, **settings)
    return replace(loss, count=loss.count.cpu())
