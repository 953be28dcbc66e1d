"""Steps of a run as they are noted, and comparison of states bit by bit."""

import dataclasses
import math
import struct
from collections.abc import Sequence
from enum import Enum
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from reference_trainer.distillation.step import MetricSum

NAMES = ("loss", "hard_loss", "soft_loss", "kl_at_T", "gradient_norm")
Step = tuple[dict[str, MetricSum], int]


@st.composite
def steps(draw: st.DrawFn, nats: st.SearchStrategy[float]) -> Step:
    """Draw the sums of a step, "loss" among them, and its sequences; a step may have scored no token."""
    count = draw(st.integers(0, 3))
    names = ["loss", *draw(st.lists(st.sampled_from(NAMES[1:]), unique=True))]
    sums = {name: MetricSum(draw(nats) if count else 0.0, count) for name in names}
    return sums, draw(st.integers(0, 4))


EIGHTHS = st.integers(-800, 800).map(lambda n: n / 8)
"""Nats whose sums have no rounding error."""
ANY = EIGHTHS | st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, 0.1, 5e-324, 1e308])


def noted(state: Any, taken: Sequence[Step]) -> Any:
    """Note the steps in order, and return the state."""
    for sums, sequences in taken:
        state.note(sums, sequences)
    return state


def exact(values: Sequence[MetricSum]) -> MetricSum:
    """Return the sum of sums and counts, without rounding."""
    return MetricSum(float(sum(Fraction(each.sum) for each in values)), sum(each.count for each in values))


def bits(value: Any) -> Any:
    """Return a value that is equal for states whose numbers have equal bits; every NaN is equal."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value).hex()
    if dataclasses.is_dataclass(value):
        return {field.name: bits(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: bits(each) for name, each in value.items()}
    return value if isinstance(value, Enum) else (type(value).__name__, value)


def assert_same_state(what: str, seen: Any, expected: Any) -> None:
    """Assert that every field has the same type and the same bits."""
    for name in (field.name for field in dataclasses.fields(expected)):
        got, wanted = getattr(seen, name), getattr(expected, name)
        assert bits(got) == bits(wanted), f"{what}: {name} is {got!r}; expected {wanted!r}"
