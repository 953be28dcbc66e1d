"""Wrong versions of feature matching: the faults that the contract declares."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from falsifiers.support.faults import Change

Distance = Callable[[Tensor, Tensor], Tensor]


def _with_cosine(cosine: Distance) -> Callable[..., Any]:
    """Return a fault with another cosine distance of rows, float64 [N], in the dtype of the arithmetic."""

    def fault(original: Any, student: Any, teacher: Any, scored: Tensor, *, layers: Any, **settings: Any) -> Any:
        loss = original(student, teacher, scored, layers=layers, **settings)
        if settings["distance"] != "cosine" or settings.get("projections"):
            return loss
        sums, at = [], scored.nonzero(as_tuple=True)
        for i, j in layers:
            wide = torch.promote_types(torch.promote_types(student[i].dtype, teacher[j].dtype), torch.float32)
            sums.append(cosine(student[i][at].to(wide), teacher[j].detach()[at].to(wide)).sum())
        return replace(loss, sum=torch.stack(sums).mean())

    return fault


def _one_minus_cosine(floor: float) -> Distance:
    def distance(student: Tensor, teacher: Tensor) -> Tensor:
        norms = (torch.linalg.vector_norm(x, dim=-1).clamp_min(floor) for x in (student, teacher))
        return 1 - (student * teacher).sum(-1, dtype=torch.float64) / (next(norms) * next(norms))

    return distance


def _gap_of_units(norm: Change) -> Distance:
    return lambda s, t: (s / norm(s) - t / norm(t)).square().sum(-1, dtype=torch.float64) / 2


zero_norm_is_nan = _with_cosine(_one_minus_cosine(0.0))
zero_vectors_disagree = _with_cosine(_one_minus_cosine(1e-6))
root_of_squares = _with_cosine(_gap_of_units(lambda x: x.square().sum(-1, keepdim=True).sqrt().clamp_min(1e-4)))
small_floor = _with_cosine(_gap_of_units(lambda x: torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(1e-6)))


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
