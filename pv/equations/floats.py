"""Functions of Python floats that return infinity or NaN as IEEE 754 and PyTorch do, and never raise."""

import math
import struct
from collections.abc import Callable

SMALLEST_FLOAT32 = 2.0**-149


def _without_errors(function: Callable[..., float]) -> Callable[..., float]:
    """Return a function that gives infinity for an overflow, and NaN outside its domain, where `function` raises."""

    def never_raises(*arguments: float) -> float:
        try:
            return function(*arguments)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return never_raises


exp, expm1, sqrt = _without_errors(math.exp), _without_errors(math.expm1), _without_errors(math.sqrt)
sin, cos = _without_errors(math.sin), _without_errors(math.cos)
_log, _log1p, _fmod = _without_errors(math.log), _without_errors(math.log1p), _without_errors(math.fmod)


def log(x: float) -> float:
    return -math.inf if x == 0 else _log(x)


def log1p(x: float) -> float:
    return -math.inf if x == -1 else _log1p(x)


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


def floor(x: float) -> float:
    # Keep -0.0, as PyTorch does; math.floor gives an int.
    return math.copysign(math.floor(x), x) if math.isfinite(x) else x


def sign(x: float) -> float:
    return float((x > 0) - (x < 0))


# `maximum` and `minimum` return NaN if an argument is NaN.
def maximum(a: float, b: float) -> float:
    return b if a < b or math.isnan(b) else a


def minimum(a: float, b: float) -> float:
    return b if b < a or math.isnan(b) else a


def relu(x: float) -> float:
    return maximum(x, 0.0)


def divide(a: float, b: float) -> float:
    if b != 0:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


def floor_divide(a: float, b: float) -> float:
    return a // b if b != 0 else divide(a, b)


def remainder(a: float, b: float) -> float:
    # The result of fmod has the sign of the dividend, PyTorch's remainder has the sign of the divisor.
    rest = _fmod(a, b)
    return rest + b if rest != 0 and (b < 0) != (rest < 0) else rest


def power(a: float, b: float) -> float:
    # As C99 pow: a negative base with an odd exponent overflows to -inf, and 0 to a negative power is infinite.
    infinity = -math.inf if math.copysign(1, a) < 0 and b % 2 == 1 else math.inf
    try:
        return math.pow(a, b)
    except OverflowError:
        return infinity
    except ValueError:
        return infinity if a == 0 else math.nan


def round_half_even(x: float) -> float:
    """Return the nearest whole number; of two, the even one."""
    return math.copysign(round(x), x) if math.isfinite(x) else x


def float32(x: float) -> float:
    """Return the nearest number of float32."""
    try:
        (single,) = struct.unpack("f", struct.pack("f", x))
    except OverflowError:
        return math.copysign(math.inf, x)
    return float(single)


def nextafter32(x: float, towards: float) -> float:
    """Return the float32 number next to `x`, a float32 number, in the direction of `towards`; `x` if both are equal."""
    if x == towards:
        return towards
    if x == 0:
        return math.copysign(SMALLEST_FLOAT32, towards)
    # For floats of one sign, the order of their bits as integers is the order of their magnitudes.
    (bits,) = struct.unpack("i", struct.pack("f", x))
    (single,) = struct.unpack("f", struct.pack("i", bits + (1 if (towards > x) == (x > 0) else -1)))
    return float(single)
