"""An equation that can be evaluated: what it is worth on an example, and how far rounding alone may move that."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pv.equations.accuracy import UNITS, Accuracy
from pv.equations.domain import Variable, axis_bounds
from pv.equations.draw import Example
from pv.equations.language import Formula
from pv.equations.tensors import F64, Tensors
from pv.equations.values import Axes, Callee, Value, variable_value
from pv.equations.walk import Walk

RUNS = 8
# Correct implementations stayed within 24 times what rounding each operation once moves the result; faults begin at
# 100,000 times.
SLACK = 64.0


FLOAT64 = UNITS["float64"]


@dataclass(frozen=True, slots=True)
class Equation:
    """A formula over a domain, and the axes of its results in the order that the code gives them."""

    name: str
    formula: Formula
    variables: Mapping[str, Variable]
    results: tuple[Axes, ...]
    callees: Mapping[str, Callee]

    def at(
        self, example: Example, *, differentiable: str = "", unit: float = 0.0
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """The results on an example, each [runs, *axes]; and the leaf that stands for the variable `differentiable`."""
        environment, leaf = {}, None
        for name, array in example.arrays.items():
            content = array.unsqueeze(0)
            if name == differentiable:
                content = leaf = content.clone().requires_grad_()
            environment[name] = variable_value(self.variables[name], content)
        tensors = Tensors(example.sizes, unit=unit, runs=RUNS if unit else 1)
        values = Walk(self.formula, environment, self._largest(example), tensors, self.callees).values()
        return tuple(_ordered(tensors, v, axes, example) for v, axes in zip(values, self.results, strict=True)), leaf

    def _largest(self, example: Example) -> dict[str, int]:
        return {**{axis: high for axis, (_, high) in axis_bounds(self.variables).items()}, **example.sizes}

    def exact(self, example: Example) -> tuple[Tensor, ...]:
        """The results in float64, [*axes] each."""
        return tuple(result[0] for result in self.at(example)[0])

    def allowed(self, example: Example, exact: tuple[Tensor, ...], unit: float) -> tuple[Tensor, ...]:
        """How far a correct implementation that rounds to `unit` may be from `exact`, element by element."""
        disturbed, _ = self.at(example, unit=unit)
        return tuple(_allowed(runs, value, unit) for runs, value in zip(disturbed, exact, strict=True))


def _ordered(tensors: Tensors, value: Value, axes: Axes, example: Example) -> Tensor:
    content = tensors.number(tensors.align(value, axes))
    return content.expand(content.shape[0], *(example.sizes[axis] for axis in axes))


def _allowed(runs: Tensor, value: Tensor, unit: float) -> Tensor:
    """An infinite value allows nothing beside it, and does not loosen the others. Where rounding alone may leave no
    finite number, as in the logarithm of a difference that cancels, any result is explained.
    """
    spread = torch.where(runs == value, 0.0, (runs - value).abs()).nan_to_num(nan=torch.inf, posinf=torch.inf).amax(0)
    size = value.abs().nan_to_num(nan=0.0, posinf=0.0)
    largest = size.amax() if value.numel() else torch.zeros((), dtype=F64)
    return SLACK * (spread + unit * size + unit * 1e-3 * largest) + 1e-37


class Limits:
    """How far code, or another equation, may be from the values that an equation has on one example."""

    def __init__(self, equation: Equation, accuracy: Accuracy, example: Example, values: tuple[Tensor, ...]) -> None:
        self.equation, self.accuracy, self.example, self.values = equation, accuracy, example, values
        self._measured: dict[float, tuple[Tensor, ...]] = {}

    def of_equation(self, place: int) -> Tensor:
        """For another equation, in float64."""
        return self._within(FLOAT64)[place]

    def of_code(self, place: int, returned: torch.dtype) -> Tensor:
        """For code that returns numbers of type `returned`: whatever it computes in, these are rounded once."""
        override, value = self.accuracy.tolerance, self.values[place]
        if override is not None:
            return override.relative * value.abs() + override.absolute
        return self._within(self.accuracy.unit(self.example.dtype))[place] + _rounding(value, returned)

    def _within(self, unit: float) -> tuple[Tensor, ...]:
        if unit not in self._measured:
            self._measured[unit] = self.equation.allowed(self.example, self.values, unit)
        return self._measured[unit]


def _rounding(value: Tensor, dtype: torch.dtype) -> Tensor:
    """How far rounding to a type narrower than float32 moves a value; a wider one has its share already."""
    if dtype not in (torch.float16, torch.bfloat16):
        return torch.zeros_like(value)
    limits = torch.finfo(dtype)
    return value.abs() * limits.eps / 2 + limits.tiny * limits.eps
