"""Functions of Python floats that never raise: like PyTorch, they return infinity or NaN as IEEE 754 defines."""

import math
import struct
from collections.abc import Callable

SMALLEST_FLOAT32 = 2.0**-149
"""The smallest positive float32 number, which is subnormal."""


def _without_errors(function: Callable[..., float]) -> Callable[..., float]:
    """Return `function` with the result infinity instead of an OverflowError, and NaN instead of a ValueError."""

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
    # math.floor returns an int, which loses the sign of -0.0.
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
    # The result of fmod has the sign of the dividend; PyTorch's remainder has the sign of the divisor.
    rest = _fmod(a, b)
    return rest + b if rest != 0 and (b < 0) != (rest < 0) else rest


def power(a: float, b: float) -> float:
    # As in C99 pow: a negative base with an odd exponent overflows to -inf, and 0 to a negative power is infinite.
    infinity = -math.inf if math.copysign(1, a) < 0 and b % 2 == 1 else math.inf
    try:
        return math.pow(a, b)
    except OverflowError:
        return infinity
    except ValueError:
        return infinity if a == 0 else math.nan


def round_half_even(x: float) -> float:
    """Round to the nearest whole number; halfway between two, to the even number."""
    return math.copysign(round(x), x) if math.isfinite(x) else x


def float32(x: float) -> float:
    """Round to the nearest float32 number."""
    try:
        (single,) = struct.unpack("f", struct.pack("f", x))
    except OverflowError:
        return math.copysign(math.inf, x)
    return float(single)


def nextafter32(x: float, towards: float) -> float:
    """Return the next float32 number after the float32 number `x` towards `towards`; `x` if both are equal."""
    if x == towards:
        return towards
    if x == 0:
        return math.copysign(SMALLEST_FLOAT32, towards)
    # For floats of one sign, the bits as integers have the same order as the magnitudes.
    (bits,) = struct.unpack("i", struct.pack("f", x))
    (single,) = struct.unpack("f", struct.pack("i", bits + (1 if (towards > x) == (x > 0) else -1)))
    return float(single)
