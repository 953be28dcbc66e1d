"""Metrics of an interval: sums travel with their counts, and are divided once, here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from reference_trainer.distillation.acceptance import accept_length, accepted_name

if TYPE_CHECKING:
    from reference_trainer.distillation.step import MetricSum

__all__ = ["EVALUATED", "PERPLEXITY_CAP", "add", "covering", "derived", "perplexity", "rates", "weighted_mean"]

EVALUATED = "eval/"
"""Begin of the names of metrics on held-back text."""
PERPLEXITY_CAP = 20.0
"""Cross-entropy in nats per token at which perplexities are capped: exp(20) is 4.9e8."""

_PERPLEXITIES = {"student_perplexity": "hard_loss", "teacher_perplexity": "teacher_loss"}


def weighted_mean(pairs: Iterable[tuple[float, float]]) -> float | None:
    """Return sum(sums) / sum(counts) of pairs (sum, count), in the unit of the sums; None if the counts add up to 0.

    The sum is rounded once, to float64, so the order of the pairs has no influence. A value that is not a mean over
    tokens is the pair (value, 1). NaN and infinities propagate; a sum beyond float64 is infinite.
    """
    pairs = tuple(pairs)
    count = sum(count for _, count in pairs)
    return _sum([sum for sum, _ in pairs]) / count if count else None


def _sum(values: list[float]) -> float:
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # a sum beyond float64, or inf - inf: a metric never ends a run
        return sum(values)


def perplexity(cross_entropy: MetricSum) -> float | None:
    """Return exp(min(mean, 20)) of a cross-entropy in nats, at least 1; None if it counts nothing.

    The cross-entropy is aggregated first: a mean of perplexities is larger (Jensen). NaN stays NaN.
    """
    mean = weighted_mean([(cross_entropy.sum, cross_entropy.count)])
    # `min` returns its first argument unless the second is smaller, so NaN is not capped.
    return None if mean is None else math.exp(min(mean, PERPLEXITY_CAP))


def add(left: Mapping[str, MetricSum], right: Mapping[str, MetricSum]) -> dict[str, MetricSum]:
    """Return the metrics of two micro-batches, ranks or steps together: sums and counts are added by name.

    Associative and commutative up to the rounding of the sums, with {} as identity. A metric that only one side has
    is kept as it is.
    """
    return {**left, **{name: left[name] + total if name in left else total for name, total in right.items()}}


def covering(sums: Mapping[str, MetricSum]) -> dict[str, MetricSum]:
    """Return the sums over the same tokens as the loss, and the norm of the last gradient.

    A sum covers fewer if some step did not form it: its weight was 0, or the run logged nothing until it was resumed.
    """
    tokens = sums["loss"].count
    return {name: total for name, total in sums.items() if total.count == tokens or name == "gradient_norm"}


def derived(sums: Mapping[str, MetricSum]) -> dict[str, float]:
    """Return the mean of each metric over what it counts, and the perplexities of student and teacher.

    Losses, divergences and entropies are in nats per token. `student_perplexity` is that of `hard_loss`, the student's
    cross-entropy without weight; `teacher_perplexity` that of `teacher_loss`. `accept_length` is that of the shares
    `accepted_1`, `accepted_2`, ..., up to the first that is absent. A metric that counts nothing is absent, and so is
    what is derived from it.
    """
    means = {name: weighted_mean([(metric.sum, metric.count)]) for name, metric in sums.items()}
    perplexities = {name: perplexity(sums[source]) for name, source in _PERPLEXITIES.items() if source in sums}
    shares = [*_shares(means)]
    values = {**means, **perplexities, "accept_length": accept_length(shares) if shares else None}
    return {name: value for name, value in values.items() if value is not None}


def _shares(means: Mapping[str, float | None]) -> Iterator[float]:
    for depth in itertools.count(1):
        share = means.get(accepted_name(depth))
        if share is None:
            return
        yield share


def rates(elapsed_s: float, **amounts: float) -> dict[str, float]:
    """Return `NAME_per_s` of each amount, such as `steps=10, tokens=5000`; empty if no time has passed."""
    return {f"{name}_per_s": amount / elapsed_s for name, amount in amounts.items()} if elapsed_s > 0 else {}
