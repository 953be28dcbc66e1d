"""Attacks on values that change during a run: exact ends, and what is refused before the run."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.support.oracles import assert_refused

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


@example(start=0.0, end=1.0, shape="linear", total=3)
@given(start=NUMBERS, end=st.none() | NUMBERS, shape=CHANGING, total=TOTALS)
def falsify_zero_is_seen_before_the_run(subject: Any, start: float, end: float | None, shape: str, total: int) -> None:
    annealed = subject.Annealed(start) if end is None else subject.Annealed(start, end, shape)
    values = {annealed.at(step, total + 1) for step in (1, total + 1)}
    assert annealed.is_zero is (values == {0.0}), f"is_zero is {annealed.is_zero} with values {values}, for {annealed}"


TEMPERATURES = (1e-4, 1e4)
LINE = {"end": 0.5, "shape": "linear"}
REFUSED: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    *(({"end": 0.0, "shape": shape}, (repr(shape), "constant", "linear", "cosine")) for shape in ("Linear", None)),
    *(({"shape": shape}, ("missing end", shape)) for shape in ("linear", "cosine")),
    ({"end": 0.5}, ("constant", "0.5")),
    *(
        ({**LINE, place: x}, (place, repr(x), "0 to 1e+30"))
        for place in ("start", "end")
        for x in (math.nan, math.inf, True, "0.5", -1.0)
    ),
    *(
        ({"start": 2.0, **LINE, "bounds": TEMPERATURES, place: x}, (place, repr(x), "0.0001 to 10000"))
        for place in ("start", "end")
        for x in (0.0, 10001.0)
    ),
    *(({"warmup": x}, ("warm-up", repr(x))) for x in (-1, 2.0, True)),
    ({"start": 2.0, "warmup": 1, "bounds": TEMPERATURES}, ("warm-up", "rises from 0")),
]
ACCEPTED: list[dict[str, Any]] = [
    {"start": 0.0, "end": 1e30, "shape": "cosine", "warmup": 10**9},
    {"start": 1e-4, "end": 1e4, "shape": "linear", "bounds": TEMPERATURES},
]


def falsify_invalid_values_are_refused(subject: Any) -> None:
    for changes, words in REFUSED:
        given = {"start": 0.7, "name": "beta", **changes}
        assert_refused(f"{changes}", lambda given=given: subject.Annealed(**given), "'beta'", *words)
    for given in ACCEPTED:
        subject.Annealed(**given)
    for step, total in ((0, 10), (1, 0)):
        what, at = f"step {step} of {total}", subject.Annealed(1.0, 0.0, "linear").at
        assert_refused(what, partial(at, step, total), str(step), str(total), "from 1")
