"""Attacks on perplexities, derived metrics, their sum and rates. The subject is as in `falsify_means`."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.metrics.on_numbers import metric, named

NAMES = ("loss", "soft_loss", "hard_loss", "kl_at_T", "kl_at_1", "teacher_loss", "teacher_entropy", "agreement")
NUMBERS = st.integers(-(2**40), 2**40).map(lambda number: number / 1024)
METRICS = st.dictionaries(st.sampled_from(NAMES), st.tuples(NUMBERS, st.integers(0, 2**20)), max_size=len(NAMES)).map(
    lambda metrics: list(metrics.items())
)
Metrics = list[tuple[str, tuple[float, int]]]


@given(batches=st.lists(st.tuples(st.floats(0, 18), st.integers(1, 1000)), min_size=2, max_size=5))
@example(batches=[(1.0, 1), (5.0, 3)])
def falsify_perplexity_of_the_aggregated_cross_entropy(subject: Any, batches: list[tuple[float, int]]) -> None:
    together: dict[str, Any] = {}
    for mean, count in batches:
        together = subject.add(together, {"hard_loss": metric(mean * count, count)})
    tokens = sum(count for _, count in batches)
    expected = math.exp(math.fsum(mean * count for mean, count in batches) / tokens)
    seen = subject.derived(together)["student_perplexity"]
    assert math.isclose(seen, expected, rel_tol=1e-12), (
        f"batches with means and counts {batches} have a student_perplexity of {seen}; expected {expected}"
    )


@given(mean=st.floats(20, 1e308) | st.just(math.inf), count=st.integers(1, 1))
@example(mean=1000.0, count=7)
def falsify_perplexity_is_capped(subject: Any, mean: float, count: int) -> None:
    seen = subject.perplexity(metric(mean * count, count))
    assert seen == math.exp(20), f"{mean} nats per token have a perplexity of {seen}; expected exp(20)"


def falsify_perplexity_of_nan(subject: Any) -> None:
    seen = subject.perplexity(metric(math.nan, 3))
    assert math.isnan(seen), f"a cross-entropy of NaN has a perplexity of {seen}; expected NaN"


@given(metrics=METRICS)
@example(metrics=[(name, (float(8 * place), 4)) for place, name in enumerate(NAMES, 1)])
@example(metrics=[("hard_loss", (0.0, 0)), ("teacher_loss", (0.0, 0)), ("loss", (0.0, 8))])
def falsify_derived_metrics(subject: Any, metrics: Metrics) -> None:
    """Each metric is divided by its own count; perplexities are those of hard_loss and teacher_loss.

    A metric that counts nothing is absent, and its perplexity too; a mean of 0 is present.
    """
    given_, seen = named(metrics), subject.derived(named(metrics))
    expected = {name: sum_ / count for name, (sum_, count) in metrics if count}
    for name, source in (("student_perplexity", "hard_loss"), ("teacher_perplexity", "teacher_loss")):
        if source in expected:
            expected[name] = math.exp(min(expected[source], 20.0))
    assert seen == expected, f"the metrics {given_} become {seen}; expected {expected}"


@given(first=METRICS, second=METRICS, third=METRICS)
@example(first=[("loss", (1.0, 2))], second=[("loss", (4.0, 8)), ("kl_at_1", (16.0, 32))], third=[])
def falsify_addition_of_metrics(subject: Any, first: Metrics, second: Metrics, third: Metrics) -> None:
    parts = [named(part) for part in (first, second, third)]
    expected: dict[str, tuple[float, int]] = {}
    for part in (first, second, third):
        for name, (sum_, count) in part:
            before = expected.get(name, (0.0, 0))
            expected[name] = (before[0] + sum_, before[1] + count)
    one, two, three = parts
    groupings = {
        "(a + b) + c": subject.add(subject.add(one, two), three),
        "a + (b + c)": subject.add(one, subject.add(two, three)),
        "c + (b + a)": subject.add(three, subject.add(two, one)),
        "{} + (a + b) + c + {}": subject.add(subject.add({}, subject.add(subject.add(one, two), three)), {}),
    }
    for grouping, total in groupings.items():
        seen = {name: (each.sum, each.count) for name, each in total.items()}
        assert seen == expected, f"{grouping} of {parts} is {seen}; expected {expected}"
    unchanged = [named(part) for part in (first, second, third)]
    assert parts == unchanged, f"the addition changed its arguments from {unchanged} to {parts}"


@given(
    steps=st.integers(0, 10**9),
    tokens=st.integers(0, 10**15),
    elapsed=st.floats(1e-9, 1e9) | st.sampled_from([0.0, -1.0]),
)
def falsify_rates(subject: Any, steps: int, tokens: int, elapsed: float) -> None:
    seen = subject.rates(elapsed, steps=steps, tokens=tokens)
    expected = {"steps_per_s": steps / elapsed, "tokens_per_s": tokens / elapsed} if elapsed > 0 else {}
    assert seen == expected, f"{steps} steps and {tokens} tokens in {elapsed} s are {seen}; expected {expected}"
