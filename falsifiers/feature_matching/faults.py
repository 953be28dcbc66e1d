"""Wrong versions of feature matching: the faults that the contract declares."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

Distance = Callable[[Tensor, Tensor], Tensor]


def with_distance(
    original: Any, student: Any, teacher: Any, scored: Tensor, cosine: Distance, layers: Any, distance: str, **rest: Any
) -> Any:
    """Return the loss with another cosine distance of rows, float64 [N], in the dtype of the arithmetic."""
    loss = original(student, teacher, scored, layers=layers, distance=distance, **rest)
    if distance != "cosine" or rest.get("projections"):
        return loss
    sums = []
    for i, j in layers:
        wide = torch.promote_types(torch.promote_types(student[i].dtype, teacher[j].dtype), torch.float32)
        at = scored.nonzero(as_tuple=True)
        sums.append(cosine(student[i][at].to(wide), teacher[j].detach()[at].to(wide)).sum())
    return replace(loss, sum=torch.stack(sums).mean())


def _cosine(floor: float) -> Distance:
    def distance(student: Tensor, teacher: Tensor) -> Tensor:
        norms = (torch.linalg.vector_norm(x, dim=-1).clamp_min(floor) for x in (student, teacher))
        return 1 - (student * teacher).sum(-1, dtype=torch.float64) / (next(norms) * next(norms))

    return distance


def zero_norm_is_nan(original: Any, *tensors: Any, **settings: Any) -> Any:
    return with_distance(original, *tensors, cosine=_cosine(0.0), **settings)


def zero_vectors_disagree(original: Any, *tensors: Any, **settings: Any) -> Any:
    return with_distance(original, *tensors, cosine=_cosine(1e-6), **settings)


def root_of_squares(original: Any, *tensors: Any, **settings: Any) -> Any:
    def unit(x: Tensor) -> Tensor:
        return x / x.square().sum(-1, keepdim=True).sqrt().clamp_min(1e-4)

    def distance(student: Tensor, teacher: Tensor) -> Tensor:
        return (unit(student) - unit(teacher)).square().sum(-1, dtype=torch.float64) / 2

    return with_distance(original, *tensors, cosine=distance, **settings)


def small_floor(original: Any, *tensors: Any, **settings: Any) -> Any:
    def unit(x: Tensor) -> Tensor:
        return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(1e-6)

    def distance(student: Tensor, teacher: Tensor) -> Tensor:
        return (unit(student) - unit(teacher)).square().sum(-1, dtype=torch.float64) / 2

    return with_distance(original, *tensors, cosine=distance, **settings)


def padding_included(original: Any, student: Any, teacher: Any, scored: Tensor, **settings: Any) -> Any:
    loss = original(student, teacher, scored, **settings)
    return replace(loss, sum=original(student, teacher, torch.ones_like(scored), **settings).sum)


def padding_times_zero(original: Any, student: Any, *others: Any, **settings: Any) -> Any:
    loss = original(student, *others, **settings)
    return replace(loss, sum=loss.sum + sum(0 * x.double().sum() for x in student))


def mean_of_the_batch(original: Any, *tensors: Any, **settings: Any) -> Any:
    loss = original(*tensors, **settings)
    return replace(loss, sum=loss.sum / loss.count, count=torch.ones_like(loss.count))


def every_layer(original: Any, student: Any, teacher: Any, scored: Tensor, layers: Any, **settings: Any) -> Any:
    all_pairs = [(k, k) for k in range(min(len(student), len(teacher)))]
    layers = layers if "projections" in settings else all_pairs
    return original(student, teacher, scored, layers=layers, **settings)


def students_index_for_both(
    original: Any, student: Any, teacher: Any, scored: Tensor, layers: Any, **settings: Any
) -> Any:
    same = [(i, i if -len(teacher) <= i < len(teacher) else j) for i, j in layers]
    return original(student, teacher, scored, layers=same, **settings)
