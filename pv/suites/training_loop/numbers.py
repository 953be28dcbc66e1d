"""Compare numbers, and name the known values that a number equals."""

import math
from collections.abc import Mapping

CLOSE = 1e-6
"""Relative difference up to which two numbers are called the same."""


def close(actual: float, expected: float, tolerance: float = CLOSE) -> bool:
    """Return whether two numbers are the same up to a tolerance, relative above 1; NaN equals nothing."""
    return math.isclose(actual, expected, rel_tol=tolerance, abs_tol=tolerance)


def equal_to(actual: float, values: Mapping[str, float], tolerance: float) -> tuple[str, ...]:
    """Return the names of the known values that equal a number."""
    return tuple(name for name, value in values.items() if close(actual, value, tolerance))
