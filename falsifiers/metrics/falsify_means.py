"""Attacks on means over tokens, perplexities and rates. The subject is `training.metrics`."""

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


def metric(sum_: float, count: int) -> Any:
    return MetricSum(sum_, count)


def named(metrics: Sequence[tuple[str, tuple[float, int]]]) -> dict[str, Any]:
    return {name: metric(*pair) for name, pair in metrics}


@given(pairs=PAIRS.filter(lambda pairs: any(count for _, count in pairs)), data=st.data())
@example(pairs=[(1e15, 1), (1e-9, 1), (-1e15, 1)], data=None)
def falsify_order_has_no_influence(subject: Any, pairs: list[tuple[float, int]], data: Any) -> None:
    order = pairs if data is None else data.draw(st.permutations(pairs))
    seen = subject.weighted_mean(iter(order))
    expected = float(sum(Fraction(sum_) for sum_, _ in pairs)) / sum(count for _, count in pairs)
    assert seen == expected, f"the mean of {order} is {seen!r}; expected {expected!r}, the exact sum over the count"


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
