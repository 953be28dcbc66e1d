"""Functions of floats: infinity and NaN in place of exceptions, and the numbers of float32."""

import math

import pytest
import torch

from pv.equations import floats


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (floats.exp(710), math.inf),
        (floats.log(0), -math.inf),
        (floats.log(-1), math.nan),
        (floats.log1p(-1), -math.inf),
        (floats.sqrt(-1), math.nan),
        (floats.sin(math.inf), math.nan),
        (floats.divide(1, 0), math.inf),
        (floats.divide(1, -0.0), -math.inf),
        (floats.divide(0, 0), math.nan),
        (floats.power(0, -1), math.inf),
        (floats.power(-0.0, -3), -math.inf),
        (floats.power(-8, 1 / 3), math.nan),
        (floats.power(-1e300, 3), -math.inf),
        (floats.remainder(5, 0), math.nan),
        (floats.floor(-math.inf), -math.inf),
        (floats.maximum(1, math.nan), math.nan),
    ],
)
def test_no_exception_is_raised(found: float, expected: float) -> None:
    assert repr(found) == repr(expected)


@pytest.mark.parametrize("x", [0.1, 1 / 3, 1e-45, 1e-46, 3e-39, 16777217.0, 1e38, 3.5e38, -1e39, math.inf, -0.0])
def test_nearest_number_of_float32_is_that_of_pytorch(x: float) -> None:
    assert repr(floats.float32(x)) == repr(torch.tensor(x, dtype=torch.float64).float().item())


@pytest.mark.parametrize("x", [0.0, 1.0, -1.0, 0.1, -0.3, 1e-45, 2.0**-126, 3e38])
@pytest.mark.parametrize("towards", [-1e38, -1.0, 0.0, 0.1, 1.0, 1e38])
def test_next_number_of_float32_is_that_of_pytorch(x: float, towards: float) -> None:
    x, towards = floats.float32(x), floats.float32(towards)
    assert floats.nextafter32(x, towards) == torch.nextafter(torch.tensor(x), torch.tensor(towards)).item()
