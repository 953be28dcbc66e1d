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
    n: int
    seen: int = field(default=0, init=False)


def through_json(value: Any) -> tuple[Any, bool]:
    written, exact = encode(value)
    return json.loads(json.dumps(written, allow_nan=False)), exact


def same(a: Any, b: Any) -> bool:
    """Equal in type, value and sign of zero; NaN equals NaN."""
    if isinstance(a, torch.Tensor):
        alike = isinstance(b, torch.Tensor) and (a.dtype, a.shape) == (b.dtype, b.shape)
        return alike and all(map(same, a.reshape(-1).tolist(), b.reshape(-1).tolist()))
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return math.isnan(a) == math.isnan(b) and (
            math.isnan(a) or (a, math.copysign(1, a)) == (b, math.copysign(1, b))
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


VALUES = [
    *(None, True, False, 0, -1, 1 << 53, -(1 << 53) - 1, 10**400, 1 << 50_000, -(1 << 50_000)),
    *(0.0, -0.0, 1e-6, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308),
    *(math.nan, math.inf, -math.inf, 0.1 + 0.2),
    *("", "é\u2028\0", "\ud800", "x" * 4096, '{"$float": "nan"}'),
    *([], (), {}, [()], (1,), [[1, [2.5]], (None, "a")], {"a": {"b": (1, math.nan)}}),
    *(Point(1.5), Point(-0.0, Point(math.inf)), [Point(0.0)]),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}-{str(encode(value)[0])[:20]!a}")
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    written, exact = through_json(value)
    assert exact
    assert same(decode(written), value)


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
def test_what_says_that_it_is_exact_comes_back(value: Any) -> None:
    written, exact = through_json(value)
    if exact:
        assert same(decode(written), value)


def edges(dtype: torch.dtype) -> torch.Tensor:
    """The smallest and largest values of a type, and what floats alone have."""
    if dtype is torch.bool:
        return torch.tensor([True, False])
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return torch.tensor([info.min, 0, info.max], dtype=dtype)
    limits = torch.finfo(dtype)
    subnormal = limits.smallest_normal / 2
    values = [limits.min, -0.0, 0.0, subnormal, limits.tiny, limits.eps, limits.max, math.nan, math.inf, -math.inf]
    return torch.tensor(values, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_of_edges_comes_back_bit_for_bit(dtype: torch.dtype) -> None:
    tensor = edges(dtype)
    written, exact = through_json(tensor)
    assert exact
    assert same(decode(written), tensor)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1), (2, 3, 1)], ids=str)
def test_a_tensor_comes_back_in_its_shape(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape, dtype=dtype)
    written, exact = through_json(tensor)
    assert exact
    assert same(decode(written), tensor)


def test_a_strided_view_is_written_in_its_own_order() -> None:
    tensor = torch.arange(6).reshape(2, 3).t()
    assert decode(encode(tensor)[0]).tolist() == [[0, 3], [1, 4], [2, 5]]


class RaisingRepr:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __repr__(self) -> str:
        raise self.error


class EndlessRepr:
    def __repr__(self) -> str:
        return "x" * 10_000_000


class LyingRepr:
    def __repr__(self) -> str:
        return 1


class Unread(dict[str, int]):
    def items(self) -> Any:
        raise OSError("no")


@dataclass
class Hostile:
    n: int

    def __getattribute__(self, name: str) -> Any:
        if name == "n":
            raise ValueError("no")
        return object.__getattribute__(self, name)


def cyclic() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    "value",
    [
        RaisingRepr(ValueError("no")),
        RaisingRepr(RecursionError()),
        RaisingRepr(SystemExit(0)),
        [RaisingRepr(ValueError("no"))],
        {"a": (RaisingRepr(ValueError("no")),)},
        EndlessRepr(),
        LyingRepr(),
        Unread(a=1),
        Hostile(1),
        cyclic(),
        object(),
        {1: 2},
        {"$int": 1},
        {1, 2},
        b"bytes",
        1j,
        print,
        type,
        "x" * 4097,
        list(range(MAX_ITEMS + 1)),
        Counted(1),
        torch.zeros(MAX_ELEMENTS + 1),
        torch.zeros(2, dtype=torch.complex64),
        torch.zeros(2, requires_grad=True),
        torch.zeros(2, device="meta"),
        torch.zeros(2, 2).to_sparse(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_rebuilt_is_written_and_says_so(value: Any) -> None:
    written, exact = through_json(value)
    assert not exact
    assert len(json.dumps(written)) < 40_000
    assert isinstance(show(written), str)


def test_a_class_inside_a_function_is_not_exact() -> None:
    @dataclass
    class Local:
        n: int

    written, exact = encode(Local(1))
    assert (exact, show(written)) == (False, f"{Local.__qualname__}(n=1)")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"$repr": "<x>"}, "<x> cannot be rebuilt from its text"),
        (encode(torch.zeros(MAX_ELEMENTS + 1))[0], "the tensor was too large to be written"),
        ([{"a": {"$repr": "<x>"}}], "<x> cannot be rebuilt from its text"),
    ],
)
def test_what_was_not_exact_is_not_rebuilt(value: Any, says: str) -> None:
    with pytest.raises(ValueError) as refused:
        decode(value)
    assert str(refused.value) == says


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None"),
        (1.0, "1.0"),
        (0.1 + 0.2, "0.3"),
        (1e-300, "1e-300"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (1 << 60, "1152921504606846976"),
        ("a'b", '"a\'b"'),
        ([1, (2,), ()], "[1, (2,), ()]"),
        ({"a": {"b": 1}}, "{'a': {'b': 1}}"),
        (Point(1.0, Point(2.0)), "Point(x=1.0, inside=Point(x=2.0, inside=None))"),
        (torch.tensor([[0.0, math.nan]]), "tensor([[0.0, nan]], float32)"),
        (torch.tensor(True), "tensor(True, bool)"),
        (torch.zeros(0, 3), "tensor([], float32)"),
        (torch.zeros(2, 0), "tensor([[], []], float32)"),
        (torch.zeros(5, 20), "tensor(shape [5, 20], float32)"),
        (torch.zeros(MAX_ELEMENTS + 1), f"tensor(shape [{MAX_ELEMENTS + 1}], float32)"),
    ],
)
def test_a_value_is_shown_as_a_person_would_write_it(value: Any, shown: str) -> None:
    assert show(encode(value)[0]) == shown
