"""Evaluation: equations against ordinary implementations, derivatives and gradients against finite differences."""

import math
from pathlib import Path

import pytest
import torch
import yaml

from pv.equations.draw import Drawer, Example
from pv.equations.parse import parse_equations
from pv.equations.system import System
from pv.equations.tensor_functions import F64, ROUNDED, reduced


def claim(formulas, name):
    definitions, problems = parse_equations(formulas)
    assert problems == []
    return System(definitions).claims[name]


def examples(of, count=50):
    drawer = Drawer(of.equation.variables, 0, ("float32",))
    return [drawer.example() for _ in range(count)]


def test_leaf_of_a_variable_gives_the_derivative(formulas) -> None:
    loss, step = claim(formulas, "kd_loss"), 1e-6
    kd = System(parse_equations(formulas)[0])
    example = next(each for each in examples(loss) if kd.admits(loss, each))
    (value,), leaf = loss.equation.at(example, differentiable="s")
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    assert gradient[0].shape == example.arrays["s"].shape

    def at(offset, place):
        moved = example.arrays["s"].clone().flatten()
        moved[place] += offset
        arrays = {**example.arrays, "s": moved.reshape(example.arrays["s"].shape)}
        return float(loss.equation.exact(Example(arrays, example.sizes))[0])

    for place in range(min(5, example.arrays["s"].numel())):
        expected = (at(step, place) - at(-step, place)) / (2 * step)
        assert float(gradient.flatten()[place]) == pytest.approx(expected, rel=1e-5, abs=1e-6)


HERE = Path(__file__).parent
NAMES = list(yaml.safe_load((HERE / "formulas.yaml").read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", NAMES)
def test_ordinary_implementation_holds(name, formulas, implementations, tried) -> None:
    record = tried(formulas, name, implementations, examples=30)
    assert (record["status"], record["detail"], record["valid"]) == ("held", "", 30)


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


def test_reductions_of_nothing_are_those_of_the_empty_set() -> None:
    content, nowhere = torch.tensor([[1.0, 2.0]], dtype=F64), torch.zeros(1, 2, dtype=torch.bool)
    empty = {name: float(reduced(name, content, [1], nowhere)) for name in ("sum", "prod", "max", "min", "logsumexp")}
    assert empty == {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf, "logsumexp": -math.inf}
    assert reduced("mean", content, [1], nowhere).isnan().all()
    conditions = torch.ones(1, 2, dtype=torch.bool)
    assert [reduced(name, conditions, [1], nowhere).item() for name in ("count", "any", "all")] == [0.0, False, True]
