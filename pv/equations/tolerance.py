"""The allowed difference between the result of code and the value of an equation.

It is `SLACK` times the effect of rounding every operation of the equation once, as measured in perturbed runs.
"""

from pv.equations.arrays import Tensor, torch
from pv.equations.evaluate import evaluate, is_whole
from pv.equations.examples import Example
from pv.equations.parse import UNITS, Definition
from pv.equations.tensors import F64

SLACK = 64.0
"""Factor on the effect of rounding every operation once.

Measured: correct implementations stayed below 24 times the effect; faults exceeded 100,000 times the effect.
"""
FLOAT64 = UNITS["float64"]
"""The relative error of an operation in float64."""


class Limits:
    """The allowed errors on one example, computed on first use.

    Args:
        equation: The equation.
        example: The example.
        values: The exact values of the equation, each [*axes].
    """

    def __init__(self, equation: Definition, example: Example, values: tuple[Tensor, ...]) -> None:
        self.equation, self.example, self.values = equation, example, values
        self._measured: dict[float, tuple[Tensor, ...]] = {}

    def of_equation(self, index: int) -> Tensor:
        """Return the error that is allowed to another equation, computed in float64, for the value with this index."""
        return self._measured_limits(FLOAT64)[index]

    def of_code(self, index: int, result_dtype: torch.dtype) -> Tensor:
        """Return the error that is allowed to code for the value with this index.

        It is the tolerance of the contract, if there is one. Else it includes one rounding of the result to float16 or
        bfloat16, if `result_dtype` is one of these, in addition to the rounding of the operations.
        """
        override, value = self.equation.accuracy.tolerance, self.values[index]
        # A tolerance in the contract replaces the measured one.
        if override is not None:
            return override.relative * _magnitude(value) + override.absolute
        return self._measured_limits(self.unit_roundoff(result_dtype))[index] + _rounding(value, result_dtype)

    def unit_roundoff(self, result_dtype: torch.dtype) -> float:
        """Return the relative error that is allowed to each operation of code whose result has this dtype."""
        # If the equation computes whole numbers, an integer result must be exact up to the float64 rounding of the
        # equation itself.
        floating = result_dtype.is_floating_point or not is_whole(self.equation)
        return self.equation.accuracy.unit(self.example.dtype) if floating else FLOAT64

    def _measured_limits(self, unit: float) -> tuple[Tensor, ...]:
        """Return the allowed errors of the values, measured with operations whose relative error is `unit`."""
        if unit not in self._measured:
            perturbed, _ = evaluate(self.equation, self.example, unit=unit)
            self._measured[unit] = tuple(
                allowed(runs, value, unit) for runs, value in zip(perturbed, self.values, strict=True)
            )
        return self._measured[unit]


def allowed(runs: Tensor, value: Tensor, unit: float) -> Tensor:
    """Return the allowed error of each element of a value.

    An element that is infinite in all runs allows no error, and does not increase the limits of other elements. If
    rounding alone changes whether an element is finite, such as the logarithm of a difference that cancels, any result
    is allowed.

    Args:
        runs: The value in runs with perturbed operations, [runs, *axes].
        value: The exact value, [*axes].
        unit: The relative error of the operations in those runs.

    Returns:
        The allowed absolute errors, [*axes].
    """
    # The difference of equal infinities is NaN, so equal elements are set to 0 first.
    spread = torch.where(runs == value, 0.0, (runs - value).abs()).nan_to_num(nan=torch.inf, posinf=torch.inf).amax(0)
    size = _magnitude(value)
    largest = size.amax() if value.numel() else torch.zeros((), dtype=F64)
    # spread: rounding inside the equation; unit * size: rounding of the result; unit * 1e-3 * largest: elements that
    # cancel to nearly 0 in all runs; 1e-37: results that underflow float32.
    return SLACK * (spread + unit * size + unit * 1e-3 * largest) + 1e-37


def _rounding(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the error of rounding a value to float16 or bfloat16; 0 for wider dtypes.

    The rounding to a wider dtype is part of the measured error.
    """
    if dtype not in (torch.float16, torch.bfloat16):
        return torch.zeros_like(value)
    limits = torch.finfo(dtype)
    return _magnitude(value) * limits.eps / 2 + limits.tiny * limits.eps


def _magnitude(value: Tensor) -> Tensor:
    """Return the magnitude of each element; 0 for an infinite element, for which only the same infinity is allowed."""
    return value.abs().nan_to_num(nan=0.0, posinf=0.0)
