"""Attacks on values that change during a run: exact ends, bounds and direction, whatever the numbers.

The subject has `Annealed`, as `training.annealing` does.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

NUMBERS = st.sampled_from([0.0, 1, 0.1, 0.2, 0.9, 0.7, 4.0, 1e-4, 1e30]) | st.floats(0, 1e4)
CHANGING = st.sampled_from(["linear", "cosine"])
TOTALS = st.sampled_from([1, 2, 3, 10]) | st.integers(1, 10**6)
WARMUPS = st.sampled_from([0, 1, 2, 7]) | st.integers(0, 10**6)


@given(start=NUMBERS, end=NUMBERS, shape=CHANGING, warmup=WARMUPS, more=TOTALS)
def falsify_ends_are_exact(subject: Any, start: float, end: float, shape: str, warmup: int, more: int) -> None:
    annealed, first = subject.Annealed(start, end, shape, warmup), max(1, warmup)
    total = first + more
    for step, expected in ((first, start), (total, end), (total + 1, end), (2 * total, end)):
        seen = annealed.at(step, total)
        assert type(seen) is float and seen == expected, (
            f"step {step} of {total} has {seen!r}; expected {float(expected)!r}, for {annealed}"
        )
    assert annealed.at(first, first) == start, f"a run that ends with its warm-up ends with {annealed.at(first, first)}"


@given(start=NUMBERS, end=NUMBERS, shape=CHANGING, total=TOTALS, data=st.data())
def falsify_values_stay_between_their_ends(
    subject: Any, start: float, end: float, shape: str, total: int, data: st.DataObject
) -> None:
    step = data.draw(st.integers(1, total))
    later = data.draw(st.integers(step, total))
    annealed = subject.Annealed(start, end, shape)
    values = [start, annealed.at(step, total), annealed.at(later, total), end]
    assert values == sorted(values, reverse=start > end), (
        f"start, step {step}, step {later} of {total} and end are {values}, for {annealed}"
    )


@given(start=NUMBERS, total=TOTALS, warmup=WARMUPS, data=st.data())
def falsify_values_without_an_end_stay(
    subject: Any, start: float, total: int, warmup: int, data: st.DataObject
) -> None:
    first = max(1, warmup)
    step, total = first + data.draw(st.integers(0, 10**6)), first + total
    kinds = (subject.Annealed(start, warmup=warmup), *_between_equal_ends(subject, start, warmup))
    for annealed in kinds:
        seen = annealed.at(step, total)
        assert type(seen) is float and seen == start, (
            f"step {step} of {total} has {seen!r}; expected {float(start)!r}, for {annealed}"
        )


def _between_equal_ends(subject: Any, value: float, warmup: int) -> list[Any]:
    return [subject.Annealed(value, value, shape, warmup) for shape in ("linear", "cosine")]


@given(start=NUMBERS, end=st.none() | NUMBERS, shape=CHANGING, total=TOTALS)
def falsify_zero_is_seen_before_the_run(subject: Any, start: float, end: float | None, shape: str, total: int) -> None:
    annealed = subject.Annealed(start) if end is None else subject.Annealed(start, end, shape)
    values = {annealed.at(step, total + 1) for step in (1, total + 1)}
    assert annealed.is_zero is (values == {0.0}), f"is_zero is {annealed.is_zero} with values {values}, for {annealed}"
