"""Attacks on means over tokens, perplexities and rates. The subject is `training.metrics`."""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from reference_trainer.distillation.step import MetricSum

FINITE = st.floats(-1e15, 1e15)
COUNTS = st.integers(0, 10**6)
PAIRS = st.lists(st.tuples(FINITE, COUNTS), max_size=8)
NOT_FINITE = [math.nan, math.inf, -math.inf]
HUGE = 1.7e308  # twice this is beyond float64


def metric(sum_: float, count: int) -> Any:
    return MetricSum(sum_, count)


def named(metrics: Sequence[tuple[str, tuple[float, int]]]) -> dict[str, Any]:
    return {name: metric(*pair) for name, pair in metrics}


def exact_mean(pairs: list[tuple[float, int]]) -> float:
    """Return the mean: the exact sum, rounded once, over the exact count."""
    return float(sum(Fraction(sum_) for sum_, _ in pairs)) / sum(count for _, count in pairs)


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
    # The sums are multiples of 1/1024, so no addition rounds.
    pairs = [(number / 1024, count) for number, count in pairs]
    places = [0, *sorted(min(cut, len(pairs)) for cut in cuts), len(pairs)]
    shards = [pairs[start:stop] for start, stop in itertools.pairwise(places)]
    together: dict[str, Any] = {}
    for shard in shards:
        part: dict[str, Any] = {}
        for pair in shard:
            part = subject.add(part, {"hard_loss": metric(*pair)})
        together = subject.add(together, part)
    seen = subject.derived(together)
    expected: dict[str, float] = {}
    if any(count for _, count in pairs):
        expected = {"hard_loss": exact_mean(pairs), "student_perplexity": math.exp(min(exact_mean(pairs), 20.0))}
    assert seen == expected, f"shards {shards} give {seen}; expected {expected}, whatever the shards"


@given(sums=st.lists(FINITE | st.sampled_from(NOT_FINITE), max_size=4))
def falsify_nothing_counted_has_no_mean(subject: Any, sums: list[float]) -> None:
    seen = subject.weighted_mean([(sum_, 0) for sum_ in sums])
    assert seen is None, f"the mean of {sums} over no tokens is {seen}; expected None"


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


NAMES = ("loss", "soft_loss", "hard_loss", "kl_at_T", "kl_at_1", "teacher_loss", "teacher_entropy", "agreement")
NUMBERS = st.integers(-(2**40), 2**40).map(lambda number: number / 1024)
METRICS = st.dictionaries(st.sampled_from(NAMES), st.tuples(NUMBERS, st.integers(0, 2**20)), max_size=len(NAMES)).map(
    lambda metrics: list(metrics.items())
)
Metrics = list[tuple[str, tuple[float, int]]]


@given(metrics=METRICS)
@example(metrics=[(name, (float(8 * place), 4)) for place, name in enumerate(NAMES, 1)])
@example(metrics=[("hard_loss", (0.0, 0)), ("teacher_loss", (0.0, 0)), ("loss", (0.0, 8))])
@example(metrics=[("hard_loss", (math.inf, 1)), ("teacher_loss", (math.nan, 3)), ("kl_at_1", (7000.0, 7))])
def falsify_derived_metrics(subject: Any, metrics: Metrics) -> None:
    given_, seen = named(metrics), subject.derived(named(metrics))
    expected = {name: sum_ / count for name, (sum_, count) in metrics if count}
    for name, source in (("student_perplexity", "hard_loss"), ("teacher_perplexity", "teacher_loss")):
        if source in expected:
            expected[name] = math.exp(min(expected[source], 20.0))
    assert repr(seen) == repr(expected), f"the metrics {given_} become {seen}; expected {expected}"


@given(
    steps=st.integers(0, 10**9),
    tokens=st.integers(0, 10**15),
    elapsed=st.floats(1e-9, 1e9) | st.sampled_from([0.0, -1.0]),
)
def falsify_rates(subject: Any, steps: int, tokens: int, elapsed: float) -> None:
    seen = subject.rates(elapsed, steps=steps, tokens=tokens)
    expected = {"steps_per_s": steps / elapsed, "tokens_per_s": tokens / elapsed} if elapsed > 0 else {}
    assert seen == expected, f"{steps} steps and {tokens} tokens in {elapsed} s are {seen}; expected {expected}"
