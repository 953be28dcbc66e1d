"""Faulty aggregations, for mutants that replace a public function. `original` is the replaced function."""

import math
from dataclasses import replace
from typing import Any

import numpy as np


def mean_of_means(original: Any, pairs: Any) -> Any:
    return original([(sum_ / count, 1) for sum_, count in pairs if count])


def nothing_is_perfect(original: Any, pairs: Any) -> Any:
    return original(pairs) or 0.0


def in_float32(original: Any, pairs: Any) -> Any:
    sums, counts = np.float32(0), np.float32(0)
    for sum_, count in pairs:
        sums, counts = sums + np.float32(sum_), counts + np.float32(count)
    return float(sums / counts) if counts else None


def uncapped(original: Any, cross_entropy: Any) -> Any:
    return math.exp(cross_entropy.sum / cross_entropy.count) if cross_entropy.count else None


def mean_of_perplexities(original: Any, left: Any, right: Any) -> Any:
    total = original(left, right)
    for name in left.keys() & right.keys() & {"hard_loss", "teacher_loss"}:
        pair = [metric for metric in (left[name], right[name]) if metric.count]
        if len(pair) == 2:
            weighted = sum(metric.count * math.exp(metric.sum / metric.count) for metric in pair) / total[name].count
            total[name] = replace(total[name], sum=math.log(weighted) * total[name].count)
    return total


def inactive_is_zero(original: Any, sums: Any) -> Any:
    derived = original(sums)
    inactive = {name: 0.0 for name in sums if name not in derived}
    sources = {"hard_loss": "student_perplexity", "teacher_loss": "teacher_perplexity"}
    return {**inactive, **{sources[name]: 1.0 for name in inactive if name in sources}, **derived}
