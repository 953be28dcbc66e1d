"""Faulty aggregations, for mutants that replace a public function. `original` is the replaced function."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np


def mean_of_means(original: Any, pairs: Any) -> Any:
    """Average the means of the batches: a short batch counts as much as a long one."""
    return original([(sum_ / count, 1) for sum_, count in pairs if count])


def nothing_is_perfect(original: Any, pairs: Any) -> Any:
    """Return 0 where nothing was counted: a perfect loss."""
    return original(pairs) or 0.0


def in_float32(original: Any, pairs: Any) -> Any:
    """Add sums and counts in float32."""
    sums, counts = np.float32(0), np.float32(0)
    for sum_, count in pairs:
        sums, counts = sums + np.float32(sum_), counts + np.float32(count)
    return float(sums / counts) if counts else None


def counts_in_float32(original: Any, left: Any, right: Any) -> Any:
    """Add counts in float32, which has no odd numbers above 2^24."""
    total = original(left, right)
    return {name: replace(each, count=int(np.float32(each.count))) for name, each in total.items()}


def running_sum(original: Any, pairs: Any) -> Any:
    """Add the sums one after the other: each addition rounds, so the order has an influence."""
    pairs = list(pairs)
    total = 0.0
    for sum_, _ in pairs:
        total += sum_
    count = sum(count for _, count in pairs)
    return total / count if count else None


def values_without_weight(original: Any, pairs: Any) -> Any:
    """Leave out pairs of count 1: values that are not per token are lost."""
    return original([(sum_, count) for sum_, count in pairs if count != 1])


def uncapped(original: Any, cross_entropy: Any) -> Any:
    """Return exp(mean) without a cap: 1000 nats overflow."""
    return math.exp(cross_entropy.sum / cross_entropy.count) if cross_entropy.count else None


def nan_is_capped(original: Any, cross_entropy: Any) -> Any:
    """Cap with the cap first: `min(20.0, nan)` is 20."""
    if not cross_entropy.count:
        return None
    return math.exp(min(20.0, cross_entropy.sum / cross_entropy.count))


def mean_of_perplexities(original: Any, left: Any, right: Any) -> Any:
    """Make the cross-entropy of a sum that whose perplexity is the mean of both perplexities."""
    total = original(left, right)
    for name in left.keys() & right.keys() & {"hard_loss", "teacher_loss"}:
        pair = [each for each in (left[name], right[name]) if each.count]
        if len(pair) == 2:
            weighted = sum(each.count * math.exp(each.sum / each.count) for each in pair) / total[name].count
            total[name] = replace(total[name], sum=math.log(weighted) * total[name].count)
    return total


def inactive_is_zero(original: Any, sums: Any) -> Any:
    """Report metrics that count nothing as 0, and their perplexity as exp(0) = 1."""
    derived = original(sums)
    inactive = {name: 0.0 for name in sums if name not in derived}
    sources = {"hard_loss": "student_perplexity", "teacher_loss": "teacher_perplexity"}
    return {**inactive, **{sources[name]: 1.0 for name in inactive if name in sources}, **derived}


def perplexity_of_the_mix(original: Any, sums: Any) -> Any:
    """Report the perplexity of the mixed loss as the student's."""
    return original({**sums, "hard_loss": sums["loss"]} if "loss" in sums and "hard_loss" in sums else sums)


def one_count_for_all(original: Any, sums: Any) -> Any:
    """Divide every metric by the count of the first."""
    first = next(iter(sums.values()), None)
    return original({name: replace(each, count=first.count) for name, each in sums.items()} if first else sums)


def metrics_of_one_side_lost(original: Any, left: Any, right: Any) -> Any:
    """Keep only metrics that both sides have."""
    return {name: each for name, each in original(left, right).items() if name in left and name in right}


def added_in_place(original: Any, left: Any, right: Any) -> Any:
    """Add into the left side, which the caller still holds."""
    left.update(original(left, right))
    return left


def rate_of_no_time(original: Any, elapsed_s: float, **amounts: float) -> Any:
    """Report a rate where no time has passed, as if it were a nanosecond."""
    return original(max(elapsed_s, 1e-9), **amounts)
