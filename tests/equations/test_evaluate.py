"""Evaluation: equations against loops over Python floats, and derivatives against central differences."""

import pytest
import torch

from pv.equations.draw import Drawer, Example
from pv.equations.parse import parse_equations
from pv.equations.system import System


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
