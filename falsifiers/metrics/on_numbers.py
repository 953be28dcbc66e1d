"""The aggregation as functions of numbers and arrays: the subject that the equations are checked against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import reference_trainer
from reference_trainer.training import metrics


def mean(sums: Any, counts: Any) -> float | None:
    """Return the mean of parallel arrays of sums and counts."""
    return metrics.weighted_mean(zip(sums.tolist(), counts.tolist(), strict=True))


def perplexity(sums: Any, counts: Any) -> float | None:
    """Return the perplexity of cross-entropies that are added up first."""
    return metrics.perplexity(aggregated(zip(sums.tolist(), counts.tolist(), strict=True)))


def aggregated(pairs: Any) -> Any:
    """Return the pairs added up by `add`, as one metric."""
    total: dict[str, Any] = {}
    for sum, count in pairs:
        total = metrics.add(total, {"cross_entropy": metric(sum, count)})
    return total["cross_entropy"]


def metric(sum: float, count: int) -> Any:
    return reference_trainer.MetricSum(sum, count)


def named(metrics: Sequence[tuple[str, tuple[float, int]]]) -> dict[str, Any]:
    """Return metrics by name."""
    return {name: metric(*pair) for name, pair in metrics}
