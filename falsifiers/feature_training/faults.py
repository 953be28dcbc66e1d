"""Wrong versions of public functions: the faults that the contract declares."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor


def _divided(original: Any, models: Any, named: Any, divisor: Callable[[Any], int]) -> Any:
    """Run a window whose features are divided by divisor(scored positions of a micro-batch)."""
    from reference_trainer.distillation.features import FeatureMatching

    weight, matching = models[3].feature_weight, named.get("features")
    if matching is None:
        return original(*models, **named)

    class Changed(FeatureMatching):
        def differentiate(self, student: Any, teacher: Any, scored: Any, scale: Any) -> Any:
            return FeatureMatching.differentiate(self, student, teacher, scored, weight / max(divisor(scored), 1))

    changed = Changed(layers=matching.layers, distance=matching.distance, projections=matching.projections)
    return original(*models, **{**named, "features": changed})


def divided_by_its_own_tokens(original: Any, *models: Any, **named: Any) -> Any:
    return _divided(original, models, named, lambda scored: int(scored.sum()))


def own_divisor_on_each_rank(original: Any, *models: Any, **named: Any) -> Any:
    count = sum(int((batch.labels[:, 1:] != -100).sum()) for batch in models[2])
    return _divided(original, models, named, lambda scored: count)


def mean_reported(original: Any, *arguments: Any) -> Any:
    distance, gradients = original(*arguments)
    return distance / max(int(arguments[3].sum()), 1), gradients


def weight_of_the_first_step(original: Any, objective: Any, step: int, total: int) -> Any:
    return replace(original(objective, step, total), feature_weight=original(objective, 1, total).feature_weight)


def mean_of_step_means(original: Any, self: Any, sums: Any, sequences: int) -> None:
    changed = dict(sums)
    feature = sums.get("feature")
    if feature is not None and feature.count:
        changed["feature"] = type(feature)(feature.sum / feature.count, 1)
    original(self, changed, sequences)


def layers_clamped(original: Any, student: Any, teacher: Any, scored: Tensor, layers: Any, **settings: Any) -> Any:
    clamped = [(min(i, len(student) - 1), min(j, len(teacher) - 1)) for i, j in layers]
    return original(student, teacher, scored, layers=clamped, **settings)


def distance_unchecked(original: Any, rows: Any, weights: Any, feature: Any = None) -> Any:
    return original(rows, weights)
