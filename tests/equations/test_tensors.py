"""The algebra of tensors: alignment by axis name, selection, and disturbed runs."""

import math

import pytest
import torch

from pv.equations.tensor_functions import F64
from pv.equations.tensors import Tensors
from pv.equations.values import Value, ValueType

UNIT = 2.0**-24


def value(axes, content):
    return Value(tuple(axes), ValueType.NUMBER, torch.as_tensor(content, dtype=F64).unsqueeze(0))


def test_align_permutes_and_inserts_axes() -> None:
    matrix = value("AB", [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    aligned = Tensors({"A": 2, "B": 3, "C": 4}).align(matrix, ("B", "C", "A"))
    assert aligned.shape == (1, 3, 1, 2)
    assert aligned[0, :, 0].tolist() == [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]


def test_exact_algebra_does_not_disturb() -> None:
    x = torch.tensor([[0.1, 0.2, 0.7]], dtype=F64)
    algebra = Tensors({"V": 3})
    assert algebra.elementwise("exp", [x]).tolist() == [
        pytest.approx([math.exp(v) for v in (0.1, 0.2, 0.7)], rel=1e-15)
    ]
    assert algebra.constant(0.1).tolist() == [0.1]
    assert algebra.size("V").tolist() == [3.0]


def test_disturbed_operations_are_off_by_one_unit_in_both_directions() -> None:
    algebra = Tensors({"V": 64}, unit=UNIT, runs=8)
    product = algebra.elementwise(
        "multiply", [torch.full((1, 64), 3.0, dtype=F64), torch.full((1, 64), 0.5, dtype=F64)]
    )
    assert product.shape == (8, 64)
    assert set((product / 1.5 - 1).flatten().tolist()) == {UNIT, -UNIT}


def test_exact_operations_are_not_disturbed() -> None:
    algebra = Tensors({"V": 3}, unit=UNIT, runs=8)
    x = torch.tensor([[0.1, 0.9, 0.5]], dtype=F64)
    assert algebra.exact("negative", [x]).tolist() == (-x).tolist()
    assert algebra.reduce("max", x, [0], None).tolist() == [0.9]
    assert algebra.constant(3.0).shape == (1,)
    assert algebra.constant(math.inf).tolist() == [math.inf]
    assert algebra.constant(0.1).shape == (8,)


@pytest.mark.parametrize("row", [[1.0, 2.0, -3.0], [800.0, 0.0, 799.0], [-math.inf, 0.0, 1.0]])
def test_softmax_does_not_overflow_and_equals_the_sum_of_exponentials(row) -> None:
    algebra, x = Tensors({"V": 3}), torch.tensor([row], dtype=F64)
    top = max(row)
    total = math.fsum(math.exp(v - top) for v in row)
    expected = [math.exp(v - top) / total for v in row]
    assert algebra.along("softmax", x, 0).tolist() == [pytest.approx(expected, rel=1e-14)]
    logs = [v - top - math.log(total) for v in row]
    assert algebra.along("log_softmax", x, 0).tolist() == [pytest.approx(logs, rel=1e-14)]


@pytest.mark.parametrize(("name", "expected"), {"cumsum": [2.0, 5.0, 1.0], "cumprod": [2.0, 6.0, -24.0]}.items())
def test_running_totals(name, expected) -> None:
    assert Tensors({"V": 3}).along(name, torch.tensor([[2.0, 3.0, -4.0]], dtype=F64), 0).tolist() == [expected]


def test_pick_selects_by_index_and_is_nan_outside() -> None:
    content = torch.tensor([[[10.0, 11.0], [20.0, 21.0], [30.0, 31.0]]], dtype=F64)
    picked = Tensors({"V": 2, "B": 3}).pick(content, torch.tensor([[1, 0, -100]]))
    assert picked[0, :2].tolist() == [11.0, 20.0]
    assert picked[0, 2].isnan()


def test_select_is_nan_where_the_axis_is_shorter_than_the_index() -> None:
    algebra, content = Tensors({"V": 2}), torch.tensor([[5.0, 6.0]], dtype=F64)
    assert [algebra.select(content, 0, place).item() for place in (0, -1)] == [5.0, 6.0]
    assert algebra.select(content, 0, 2).isnan().all()
    assert algebra.select(content, 0, -3).isnan().all()


def test_one_hot_argmax_and_top() -> None:
    algebra = Tensors({"V": 4, "K": 2})
    assert algebra.one_hot(torch.tensor([[2, -100]]), "V").tolist() == [[[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]]
    content = torch.tensor([[3.0, 9.0, 1.0, 7.0]], dtype=F64)
    assert algebra.argmax(content, 0).tolist() == [1]
    assert algebra.top(content, 0, "K").tolist() == [[1, 3]]
