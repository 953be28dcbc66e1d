"""Evaluation: equations against loops over Python floats, and derivatives against central differences."""

import math

import pytest
import torch

from pv.equations.draw import Drawer, Example
from pv.equations.evaluate import RUNS
from pv.equations.parse import parse_equations
from pv.equations.system import System
from pv.equations.tensor_functions import F64


def claim(formulas, name):
    definitions, problems = parse_equations(formulas)
    assert problems == []
    return System(definitions).claims[name]


def examples(of, count=50):
    drawer = Drawer(of.equation.variables, 0, ("float32",))
    return [drawer.example() for _ in range(count)]


def test_divergence_equals_the_sum_over_outcomes(formulas) -> None:
    kl = claim(formulas, "kl")
    for example in examples(kl):
        log_p, log_q = (example.arrays[name].tolist() for name in ("log_p", "log_q"))
        terms = [math.exp(p) * (p - q) for p, q in zip(log_p, log_q, strict=True)]
        (value,) = kl.equation.exact(example)
        assert float(value) == pytest.approx(math.fsum(terms), rel=1e-12, abs=1e-12 * max(map(abs, terms)))


def test_matrix_product_reduces_the_shared_axis() -> None:
    product = claim(
        {
            "e": {
                "domain": {"a": "real[N,K]", "b": "real[K,M]"},
                "result": "real[M,N]",
                "expression": "sum(a * b, K)",
            }
        },
        "e",
    )
    for example in examples(product, 20):
        a, b = (example.arrays[name].tolist() for name in ("a", "b"))
        expected = [
            [math.fsum(row[k] * b[k][m] for k in range(len(b))) for row in a] for m in range(example.sizes["M"])
        ]
        (value,) = product.equation.exact(example)
        assert value.tolist() == [pytest.approx(row, rel=1e-12, abs=1e-12) for row in expected]


def test_result_is_expanded_to_axes_that_the_formula_does_not_use() -> None:
    e = claim({"e": {"domain": {"x": "real[N]"}, "result": "real[N]", "expression": "x * 0 + N"}}, "e")
    (value,) = e.equation.exact(Example({"x": torch.tensor([5.0, 6.0, 7.0], dtype=F64)}, {"N": 3}))
    assert value.tolist() == [3.0, 3.0, 3.0]


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


def test_disturbed_evaluation_has_several_runs_near_the_exact_value(formulas) -> None:
    softmax = claim({"e": {"domain": {"x": "real[V]"}, "result": "real[V]", "expression": "softmax(x, V)"}}, "e")
    (example, *_) = examples(softmax, 1)
    (exact,), ((runs,), leaf) = softmax.equation.exact(example), softmax.equation.at(example, unit=2.0**-24)
    assert leaf is None
    assert runs.shape == (RUNS, *exact.shape)
    assert not torch.equal(runs[0], runs[1])
    assert ((runs - exact).abs() <= 100 * 2.0**-24 * exact).all()


@pytest.mark.parametrize(
    ("domain", "expression", "whole"),
    [
        ({"n": "int 0..9"}, "2 * n**2 - n % 3", True),
        ({"n": "int 0..9", "m": "mask[V]"}, "sum(where(m, n, V), V)", True),
        ({"n": "int 0..9"}, "n / 2", False),
        ({"n": "int 0..9"}, "0.5 * n", False),
        ({"n": "int 0..9"}, "pi * n", False),
        ({"n": "int 0..9"}, "sqrt(n)", False),
        ({"n": "int 0..9", "x": "real 0..1"}, "n", False),
    ],
)
def test_equation_of_whole_numbers_has_no_rounding(domain, expression, whole) -> None:
    assert claim({"e": {"domain": domain, "expression": expression}}, "e").equation.is_whole is whole
