"""The allowed error of code around the values of an equation: the effect of rounding every operation once."""

from pv.equations.arrays import Tensor, torch
from pv.equations.evaluate import evaluate, is_whole
from pv.equations.examples import Example
from pv.equations.parse import UNITS, Definition
from pv.equations.tensors import F64

SLACK = 64.0
"""Factor on the effect of rounding every operation once.

Measured: correct implementations stayed within 24 times this effect, and faults begin at 100,000 times.
"""
FLOAT64 = UNITS["float64"]


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

    def of_equation(self, place: int) -> Tensor:
        """Return the allowed error of another equation for the value at `place`, computed in float64."""
        return self._measured_limits(FLOAT64)[place]

    def of_code(self, place: int, result_dtype: torch.dtype) -> Tensor:
        """Return the allowed error of code for the value at `place`.

        It includes one rounding of the result to `result_dtype`, whatever dtype the code computes in.
        """
        override, value = self.equation.accuracy.tolerance, self.values[place]
        # A tolerance of the contract replaces the measured one, with the reason that it states.
        if override is not None:
            return override.relative * _magnitude(value) + override.absolute
        return self._measured_limits(self.unit_roundoff(result_dtype))[place] + _rounding(value, result_dtype)

    def unit_roundoff(self, result_dtype: torch.dtype) -> float:
        """Return the unit roundoff that is allowed to the operations of code with a result of this dtype."""
        # An integer result of an equation of whole numbers must be exact, so only the rounding of float64 is allowed.
        floating = result_dtype.is_floating_point or not is_whole(self.equation)
        return self.equation.accuracy.unit(self.example.dtype) if floating else FLOAT64

    def _measured_limits(self, unit: float) -> tuple[Tensor, ...]:
        """Return the measured allowed error of each value for operations with a unit roundoff."""
        if unit not in self._measured:
            perturbed, _ = evaluate(self.equation, self.example, unit=unit)
            self._measured[unit] = tuple(
                allowed(runs, value, unit) for runs, value in zip(perturbed, self.values, strict=True)
            )
        return self._measured[unit]


def allowed(runs: Tensor, value: Tensor, unit: float) -> Tensor:
    """Return the allowed error of each element of a value.

    An infinite value allows no error, and does not loosen the limits of other elements. If rounding alone may give no
    finite number, as in the logarithm of a difference that cancels, any result is allowed.

    Args:
        runs: The value in runs with perturbed operations, [runs, *axes].
        value: The exact value, [*axes].
        unit: The unit roundoff of the operations in those runs.

    Returns:
        The allowed absolute errors, [*axes].
    """
    # The difference of equal infinities is NaN, so equal elements are set to 0 first.
    spread = torch.where(runs == value, 0.0, (runs - value).abs()).nan_to_num(nan=torch.inf, posinf=torch.inf).amax(0)
    size = _magnitude(value)
    largest = size.amax() if value.numel() else torch.zeros((), dtype=F64)
    # The spread covers rounding inside the equation, and unit * size the rounding of the result. 0.001 unit of the
    # largest element is for an element that cancels to nearly 0 in all runs, 1e-37 for results that underflow float32.
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
    """Return the magnitude of each element; 0 for an infinite one, so that only the same infinity is allowed."""
    return value.abs().nan_to_num(nan=0.0, posinf=0.0)
