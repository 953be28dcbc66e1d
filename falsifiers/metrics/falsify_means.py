"""Attacks on means over tokens. The subject is `reference_trainer.training.metrics`, or has its functions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.metrics.on_numbers import metric

FINITE = st.floats(-1e15, 1e15)
COUNTS = st.integers(0, 10**6)
PAIRS = st.lists(st.tuples(FINITE, COUNTS), max_size=8)
NOT_FINITE = [math.nan, math.inf, -math.inf]
HUGE = 1.7e308  # twice this is beyond float64


def exact_mean(pairs: list[tuple[float, int]]) -> float:
    """Return the mean: the exact sum, rounded once, over the exact count."""
    return float(sum(Fraction(sum_) for sum_, _ in pairs)) / sum(count for _, count in pairs)


def falsify_table_of_uneven_batches(subject: Any) -> None:
    seen = subject.weighted_mean([(8, 8), (5, 1), (8, 4), (8, 4)])
    assert seen == 29 / 17, f"the mean of (8, 8), (5, 1), (8, 4), (8, 4) is {seen}; expected 29/17 = {29 / 17}"


@given(pairs=PAIRS.filter(lambda pairs: any(count for _, count in pairs)), data=st.data())
@example(pairs=[(1e15, 1), (1e-9, 1), (-1e15, 1)], data=None)
def falsify_order_has_no_influence(subject: Any, pairs: list[tuple[float, int]], data: Any) -> None:
    order = pairs if data is None else data.draw(st.permutations(pairs))
    seen, expected = subject.weighted_mean(iter(order)), exact_mean(pairs)
    assert seen == expected, f"the mean of {order} is {seen!r}; expected {expected!r}, the exact sum over the count"


@given(
    pairs=st.lists(st.tuples(st.integers(-(2**40), 2**40), st.integers(0, 2**30)), min_size=1, max_size=8),
    cuts=st.lists(st.integers(0, 8), max_size=4),
)
def falsify_partition_has_no_influence(subject: Any, pairs: list[tuple[int, int]], cuts: list[int]) -> None:
    """Batches split into shards, added up per shard and then together, give the mean of all: nothing is weighted.

    The sums are multiples of 1/1024, so no addition rounds.
    """
    pairs = [(number / 1024, count) for number, count in pairs]
    places = [0, *sorted(min(cut, len(pairs)) for cut in cuts), len(pairs)]
    shards = [pairs[start:stop] for start, stop in itertools.pairwise(places)]
    together: dict[str, Any] = {}
    for shard in shards:
        part: dict[str, Any] = {}
        for pair in shard:
            part = subject.add(part, {"loss": metric(*pair)})
        together = subject.add(together, part)
    seen = subject.derived(together)
    expected = {"loss": exact_mean(pairs)} if any(count for _, count in pairs) else {}
    assert seen == expected, f"shards {shards} give {seen}; expected {expected}, whatever the shards"


@given(
    batches=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    tokens=st.integers(2**24 - 1, 2**24 + 3) | st.integers(2**31 - 1, 2**53),
)
def falsify_large_counts_are_exact(subject: Any, batches: list[int], tokens: int) -> None:
    """Counts above 2^24, where float32 has no odd numbers, and above 2^31 are added exactly."""
    pairs = [(float(tokens), tokens), *((1.0, count) for count in batches)]
    together = {"loss": metric(*pairs[0])}
    for pair in pairs[1:]:
        together = subject.add(together, {"loss": metric(*pair)})
    total, expected = together["loss"], (sum(sum_ for sum_, _ in pairs), sum(count for _, count in pairs))
    assert (total.sum, total.count) == expected and type(total.count) is int, (
        f"{pairs} add up to {total}; expected the sum and the count {expected}"
    )
    seen, mean = subject.weighted_mean(pairs), exact_mean(pairs)
    assert seen == mean, f"the mean of {pairs} is {seen!r}; expected {mean!r}"


@given(sums=st.lists(FINITE | st.sampled_from(NOT_FINITE), max_size=4))
def falsify_nothing_counted_has_no_mean(subject: Any, sums: list[float]) -> None:
    seen = subject.weighted_mean([(sum_, 0) for sum_ in sums])
    assert seen is None, f"the mean of {sums} over no tokens is {seen}; expected None"


@given(values=st.lists(FINITE, min_size=1, max_size=6))
def falsify_values_of_weight_one_have_their_mean(subject: Any, values: list[float]) -> None:
    seen, expected = subject.weighted_mean([(value, 1) for value in values]), exact_mean([(v, 1) for v in values])
    assert seen == expected, f"the mean of {values} is {seen!r}; expected {expected!r}"


@given(
    before=PAIRS,
    after=PAIRS,
    odd=st.lists(st.sampled_from(NOT_FINITE), min_size=1, max_size=3) | st.lists(st.just(HUGE), min_size=1, max_size=3),
)
@example(before=[], after=[(1.0, 1)], odd=[math.inf, -math.inf])
@example(before=[(1.0, 1)], after=[], odd=[HUGE, HUGE])
def falsify_values_that_are_not_finite_propagate(subject: Any, before: Any, after: Any, odd: list[float]) -> None:
    pairs = [*before, *((value, 1) for value in odd), *after]
    sums, count = [sum_ for sum_, _ in pairs], sum(count for _, count in pairs)
    seen = subject.weighted_mean(pairs)
    expected = (math.inf if odd[1:] else float(sum(map(Fraction, sums)))) if HUGE in odd else _special_sum(odd)
    assert repr(seen) == repr(expected / count), f"the mean of {pairs} is {seen!r}; expected {expected / count!r}"


def _special_sum(odd: list[float]) -> float:
    """Return the sum of values that are not finite."""
    return odd[0] if len(set(map(repr, odd))) == 1 else math.nan
