"""Evaluation: functions, equations and derivatives against other implementations, and values computed by hand."""

import math
from pathlib import Path

import pytest
import torch
import yaml

from pv.equations.language import ELEMENTWISE
from pv.equations.tensors import F64, ROUNDED
from pv.equations.tensors import reduce_content as reduced
from tests.equations import implementations

NAMES = list(yaml.safe_load(Path(__file__).with_name("formulas.yaml").read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", NAMES)
def test_ordinary_implementation_holds(name, formulas, tried) -> None:
    record = tried(formulas, name, implementations, examples=15)
    assert (record["status"], record["detail"], record["valid"]) == ("held", "", 15)


@pytest.mark.parametrize(
    ("name", "others", "slope"), [("log", [], 0.25), ("sqrt", [], 0.25), ("multiply", [[math.inf, 3.0]], 3.0)]
)
def test_masked_infinite_slope_or_product_with_infinity_has_a_zero_gradient(name, others, slope) -> None:
    x = torch.tensor([0.0, 4.0], dtype=F64, requires_grad=True)
    operands = [x, *(torch.tensor(other, dtype=F64) for other in others)]
    for value in (ROUNDED[name](*operands), ROUNDED[name](*operands[::-1])):
        (gradient,) = torch.autograd.grad(torch.where(x > 0, value, torch.zeros((), dtype=F64)).sum(), x)
        assert gradient.tolist() == [0.0, slope]


def test_masked_infinite_slope_of_a_power_has_a_zero_gradient() -> None:
    for base, exponent in ((0.0, 0.5), (0.0, -1.0), (math.inf, 2.0)):
        operands = [torch.tensor([value, 4.0], dtype=F64, requires_grad=True) for value in (base, exponent)]
        value = torch.where(torch.tensor([False, True]), ROUNDED["power"](*operands), 0.0)
        gradients = torch.autograd.grad(value.sum(), operands)
        assert [float(gradient[0]) for gradient in gradients] == [0.0, 0.0]
        assert [float(gradient[1]) for gradient in gradients] == pytest.approx([256.0, 256 * math.log(4.0)])


@pytest.mark.parametrize(("base", "exponent"), [(0.0, 0.0), (0.0, 2.0), (2.0, 0.0), (-3.0, 2.0), (3.0, -1.5)])
def test_gradient_of_a_power_is_that_of_torch(base, exponent) -> None:
    for points in ([base, exponent], [exponent, abs(base)]):
        operands = [torch.tensor(point, dtype=F64, requires_grad=True) for point in points]
        own, torchs = (torch.autograd.grad(power(*operands), operands) for power in (ROUNDED["power"], torch.pow))
        torch.testing.assert_close(own, torchs, rtol=1e-15, atol=0.0, equal_nan=True)


@pytest.mark.parametrize(("name", "count"), [("exp", 1), ("log1p", 1), ("expm1", 1), ("divide", 2), ("power", 2)])
def test_derivative_is_the_slope(name, count) -> None:
    points = [torch.tensor([0.5, 2.0], dtype=F64, requires_grad=True) for _ in range(count)]
    assert torch.autograd.gradcheck(ROUNDED[name], points)


def test_reductions_of_nothing_are_those_of_the_empty_set() -> None:
    content, nowhere = torch.tensor([[1.0, 2.0]], dtype=F64), torch.zeros(1, 2, dtype=torch.bool)
    names = ("sum", "prod", "max", "min", "logsumexp", "norm")
    empty = {name: float(reduced(name, content, [1], nowhere)) for name in names}
    assert empty == {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf, "logsumexp": -math.inf, "norm": 0.0}
    assert reduced("mean", content, [1], nowhere).isnan().all()
    conditions = torch.ones(1, 2, dtype=torch.bool)
    assert [reduced(name, conditions, [1], nowhere).item() for name in ("count", "any")] == [0.0, False]
    assert reduced("all", ~conditions, [1], nowhere).item() is True


# The others have the names that they have in `math`.
ORACLES = {
    "abs": abs,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "relu": lambda x: max(x, 0.0),
    "sign": lambda x: math.copysign(1.0, x),
}


@pytest.mark.parametrize("name", sorted(set(ELEMENTWISE) - {"maximum", "minimum", "clip"}))
def test_elementwise_function_equals_its_python_function(name, evaluated) -> None:
    points = [0.3, 1.7, 2.5] if name in ("log", "sqrt") else [-0.6, 0.3, 2.5]
    oracle = ORACLES.get(name) or getattr(math, name)
    values = evaluated(f"{name}(x)", {"x": "real[N]"}, "real[N]", x=points)
    assert values == pytest.approx([float(oracle(point)) for point in points], rel=1e-15)


TABLES = yaml.safe_load((Path(__file__).parent / "values.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("table", "expression"), [(name, text) for name in TABLES for text in TABLES[name]["values"]])
def test_value_is_that_computed_by_hand(table, expression, evaluated) -> None:
    domain, arrays = TABLES[table]["domain"], TABLES[table]["arrays"]
    result, expected = TABLES[table]["values"][expression]
    assert evaluated(expression, domain, result, **arrays) == expected
