"""Arguments of a counterexample survive as JSON exactly, or say that they did not; writing them never raises."""

import json
import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pv.engines.encoding import MAX_ELEMENTS, MAX_ITEMS, decode, encode, show

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
]


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    inside: "Point | None" = None


@dataclass
class Counted:
    calls: int = field(default=0, init=False)


def through_json(value: Any) -> tuple[Any, bool]:
    written, exact = encode(value)
    return json.loads(json.dumps(written, allow_nan=False)), exact


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_exactly_encoded_values_are_decoded_unchanged(value: Any) -> None:
    written, exact = through_json(value)
    if exact:
        assert repr(decode(written)) == repr(value), "of another type or value"


def test_integer_that_python_does_not_write_in_decimal_is_decoded() -> None:
    written, exact = through_json(-(1 << 20_000))
    assert (decode(written), exact) == (-(1 << 20_000), True)


def edges(dtype: torch.dtype) -> torch.Tensor:
    """The smallest and largest values of a type, and what floats alone have."""
    if dtype is torch.bool:
        return torch.tensor([True, False])
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return torch.tensor([info.min, 0, info.max], dtype=dtype)
    limits = torch.finfo(dtype)
    # A number below the smallest normal one, which some devices flush to zero.
    subnormal = limits.smallest_normal / 2
    values = [limits.min, -0.0, 0.0, subnormal, limits.tiny, limits.eps, limits.max, math.nan, math.inf, -math.inf]
    return torch.tensor(values, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_of_edges_comes_back_bit_for_bit(dtype: torch.dtype) -> None:
    tensor = edges(dtype)
    written, exact = through_json(tensor)
    decoded = decode(written)
    assert exact and (decoded.dtype, decoded.shape) == (tensor.dtype, tensor.shape)
    assert repr(decoded.tolist()) == repr(tensor.tolist())


def test_tensor_longer_than_a_list_is_decoded() -> None:
    tensor = torch.arange(MAX_ELEMENTS).reshape(2, -1)
    encoded, exact = through_json(tensor)
    assert exact and torch.equal(decode(encoded), tensor)


class RaisingRepr:
    def __repr__(self) -> str:
        raise ValueError("no")


class EndlessRepr:
    def __repr__(self) -> str:
        return "x" * 10_000_000


def cyclic() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    "value",
    [
        {"a": (RaisingRepr(),)},
        EndlessRepr(),
        cyclic(),
        {1: 2},
        {1, 2},
        print,
        "x" * 4097,
        list(range(MAX_ITEMS + 1)),
        torch.zeros(MAX_ELEMENTS + 1),
        torch.zeros(2, requires_grad=True),
        torch.zeros(2, dtype=torch.complex64),
        torch.zeros(2).to_sparse(),
        {"$float": "nan"},
        Counted(),
        torch.zeros(2, device="meta"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_that_cannot_be_rebuilt_are_encoded_as_not_exact(value: Any) -> None:
    written, exact = through_json(value)
    assert not exact
    assert len(json.dumps(written)) < 40_000
    assert isinstance(show(written), str)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"$repr": "<x>"}, "<x> cannot be rebuilt from its text"),
        (encode(torch.zeros(MAX_ELEMENTS + 1))[0], "the tensor was encoded without its numbers"),
    ],
)
def test_values_that_are_not_exact_are_not_decoded(value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=f"^{says}$"):
        decode(value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.0, "1.0"),
        (0.1 + 0.2, "0.3"),
        (math.nan, "nan"),
        ("a'b", '"a\'b"'),
        ([1, (2,), ()], "[1, (2,), ()]"),
        ({"a": {"b": 1}}, "{'a': {'b': 1}}"),
        (Point(1.0, Point(2.0)), "Point(x=1.0, inside=Point(x=2.0, inside=None))"),
        (torch.tensor([[0.0, math.nan]]), "tensor([[0.0, nan]], float32)"),
        (torch.zeros(5, 20), "tensor(shape [5, 20], float32)"),
        (torch.tensor(2), "tensor(2, int64)"),
        (torch.zeros(2, 0), "tensor([[], []], float32)"),
        (1 << 60, "1152921504606846976"),
    ],
)
def test_a_value_is_shown_as_a_person_would_write_it(value: Any, shown: str) -> None:
    assert show(encode(value)[0]) == shown
