"""Gradients of the functions: equal to finite differences, and zero where a branch is masked."""

import math

import pytest
import torch

from pv.equations.tensor_functions import F64, ROUNDED, reduced

STEP = 1e-6
POINTS = {"log": 0.7, "log1p": 0.7, "sqrt": 0.7, "exp": 0.3, "expm1": 0.3, "tanh": 0.3, "sigmoid": 0.3, "sin": 0.3}


@pytest.mark.parametrize("name", POINTS)
def test_gradient_equals_the_central_difference(name) -> None:
    point = torch.tensor([POINTS[name]], dtype=F64, requires_grad=True)
    (gradient,) = torch.autograd.grad(ROUNDED[name](point).sum(), point)
    function = getattr(math, name, lambda x: 1 / (1 + math.exp(-x)))
    expected = (function(POINTS[name] + STEP) - function(POINTS[name] - STEP)) / (2 * STEP)
    assert float(gradient) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("name", ["log", "sqrt"])
def test_masked_infinite_slope_has_a_zero_gradient(name) -> None:
    x = torch.tensor([0.0, 4.0], dtype=F64, requires_grad=True)
    value = torch.where(x > 0, ROUNDED[name](x), torch.zeros((), dtype=F64)).sum()
    (gradient,) = torch.autograd.grad(value, x)
    assert gradient.tolist() == [0.0, 0.25]


def test_masked_product_with_infinity_has_a_zero_gradient() -> None:
    a = torch.tensor([1.0, 2.0], dtype=F64, requires_grad=True)
    b = torch.tensor([math.inf, 3.0], dtype=F64)
    value = torch.where(torch.tensor([False, True]), ROUNDED["multiply"](a, b), torch.zeros((), dtype=F64)).sum()
    (gradient,) = torch.autograd.grad(value, a)
    assert gradient.tolist() == [0.0, 3.0]


def test_quotient_is_correctly_rounded() -> None:
    a, b = torch.tensor([1.0, 2.0, 5.0], dtype=F64), torch.tensor([49.0, 3.0, 7.0], dtype=F64)
    assert ROUNDED["divide"](a, b).tolist() == [1 / 49, 2 / 3, 5 / 7]


def test_gradient_of_a_quotient_is_that_of_both_operands() -> None:
    a = torch.tensor([3.0], dtype=F64, requires_grad=True)
    b = torch.tensor([4.0], dtype=F64, requires_grad=True)
    gradients = torch.autograd.grad(ROUNDED["divide"](a, b).sum(), (a, b))
    assert [float(each) for each in gradients] == pytest.approx([1 / 4, -3 / 16])


VALUES, KEPT = [[1.0, -2.0, 4.0], [0.5, 3.0, -1.0]], [[True, False, True], [True, True, True]]
OVER_KEPT = {
    "sum": [5.0, 2.5],
    "mean": [2.5, 2.5 / 3],
    "max": [4.0, 3.0],
    "min": [1.0, -1.0],
    "prod": [4.0, -1.5],
    "norm": [math.sqrt(17), math.sqrt(10.25)],
    "logsumexp": [math.log(math.exp(1) + math.exp(4)), math.log(math.exp(0.5) + math.exp(3) + math.exp(-1))],
}


@pytest.mark.parametrize("name", OVER_KEPT)
def test_reduction_is_over_the_elements_where_the_condition_holds(name) -> None:
    content, where = torch.tensor([VALUES], dtype=F64), torch.tensor([KEPT])
    assert reduced(name, content, [2], where).tolist() == [pytest.approx(OVER_KEPT[name], rel=1e-15)]


def test_reductions_of_nothing_are_those_of_the_empty_set() -> None:
    content, nowhere = torch.tensor([[1.0, 2.0]], dtype=F64), torch.zeros(1, 2, dtype=torch.bool)
    empty = {name: float(reduced(name, content, [1], nowhere)) for name in ("sum", "prod", "max", "min", "logsumexp")}
    assert empty == {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf, "logsumexp": -math.inf}
    assert reduced("mean", content, [1], nowhere).isnan().all()
    conditions = torch.ones(1, 2, dtype=torch.bool)
    assert [reduced(name, conditions, [1], nowhere).item() for name in ("count", "any", "all")] == [0.0, False, True]
