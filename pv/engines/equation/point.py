"""Check that the shapes and values of an example to replay are in the domain of an equation, without torch."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from reprlib import repr as short

from pv.engines.encoding import decode
from pv.equations.domain import DISTRIBUTIONS, Kind, Variable, free_sizes
from pv.equations.parse import UNITS

SUM_ERROR = 0.05
"""The allowed difference between the sum of a distribution and 1: every term may be rounded to bfloat16."""


@dataclass(frozen=True, slots=True)
class Array:
    """The value of an argument.

    Attributes:
        shape: The shape; () for a number.
        numbers: The numbers in row-major order.
        rounding: The allowed relative distance from a bound: rounding to the dtype may move a number out of the bounds.
    """

    shape: tuple[int, ...]
    numbers: tuple[float, ...]
    rounding: float


def faults(variables: Mapping[str, Variable], example: Mapping[str, object]) -> Iterator[str]:
    """Yield the reasons why an example, which has the correct names, is outside of the domain.

    Args:
        variables: The variables of the domain.
        example: The arguments in JSON, by name.
    """
    arrays: dict[str, Array] = {}
    free = free_sizes(variables)
    variables = {**variables, **free}
    for name, value in example.items():
        array = _array(value)
        if array is None:
            yield f"{name} is {short(value)}: expected a number or an array of numbers"
            return
        arrays[name] = array
    sizes: dict[str, tuple[int, str]] = {}
    problems = [fault for name, array in arrays.items() for fault in _shape_faults(variables[name], array, sizes)]
    problems += list(_size_faults(variables, sizes))
    # Sizes that no shape shows are arguments of the example. Check them first, since other bounds may depend on them.
    problems += _value_faults(variables, {axis: arrays[axis] for axis in free if not arrays[axis].shape}, {})
    if problems:
        # Other values are checked only if all shapes are correct, since a bound may be the size of an axis.
        yield from problems
        return
    numbers = {axis: float(size) for axis, (size, _) in sizes.items()}
    yield from _value_faults(variables, arrays, numbers | {axis: arrays[axis].numbers[0] for axis in free})


def _array(value: object) -> Array | None:
    """Return the shape and the numbers of an encoded value; None if it is not a number or an array."""
    try:
        if isinstance(value, dict) and set(value) == {"$tensor"}:
            numbers = tuple(float(number) for number in decode(value["$tensor"]["data"]))
            shape = tuple(int(size) for size in value["$tensor"]["shape"])
            dtype = str(value["$tensor"]["dtype"])
        else:
            (shape, numbers), dtype = _nested(decode(value)), "float32"
        return Array(shape, numbers, 2 * UNITS.get(dtype, 0.0)) if math.prod(shape) == len(numbers) else None
    except (TypeError, ValueError, KeyError, OverflowError):
        return None


def _nested(value: object) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the shape and the numbers of nested lists. Raise TypeError or ValueError for any other value."""
    if not isinstance(value, list):
        if not isinstance(value, int | float):
            raise TypeError
        return (), (float(value),)
    parts = [_nested(item) for item in value]
    if len({shape for shape, _ in parts}) > 1:
        raise ValueError
    return (len(parts), *(parts[0][0] if parts else ())), tuple(number for _, row in parts for number in row)


def _shape_faults(variable: Variable, array: Array, sizes: dict[str, tuple[int, str]]) -> Iterator[str]:
    """Yield the faults of a shape. For each new axis, add the size and the name of the array to `sizes`."""
    name = variable.name
    if len(array.shape) != len(variable.axes):
        yield f"{name} has the shape {list(array.shape)}, its axes are [{','.join(variable.axes)}]"
        return
    for axis, size in zip(variable.axes, array.shape, strict=True):
        first_size, first_name = sizes.setdefault(axis, (size, name))
        if first_size != size:
            yield f"axis {axis} has size {first_size} in {first_name} and {size} in {name}"


def _size_faults(variables: Mapping[str, Variable], sizes: Mapping[str, tuple[int, str]]) -> Iterator[str]:
    """Yield the faults of axes whose size is outside of the declared range."""
    for axis, (size, name) in sizes.items():
        declared = variables.get(axis)
        if declared is not None and not float(declared.low) <= size <= float(declared.high):
            domain = f"{_text(declared.low)}..{_text(declared.high)}"
            yield f"axis {axis} has size {size} in {name}, its domain is {domain}"


def _value_faults(
    variables: Mapping[str, Variable], arrays: Mapping[str, Array], sizes: Mapping[str, float]
) -> Iterator[str]:
    """Yield the faults of arrays with numbers outside of the domain, and of distributions that do not sum to 1."""
    for name, array in arrays.items():
        variable = variables[name]
        low, high = _bounds(variable, arrays, sizes)
        outside = [number for number in array.numbers if not _is_in_domain(variable, number, low, high, array.rounding)]
        if outside:
            extra = f" or {variable.extra}" if variable.extra is not None else ""
            domain = f"{variable.kind} {_text(low)}..{_text(high)}{extra}"
            yield f"{name} is {_text(outside[0])}, its domain is {domain}"
        elif variable.kind in DISTRIBUTIONS and not _sums_to_one(variable, array):
            yield f"{name} does not sum to 1 along {variable.axes[-1]}"


def _text(number: float | str) -> str:
    """Return a number with the fewest digits that identify it; a name unchanged."""
    return number if isinstance(number, str) else repr(number).removesuffix(".0")


def _bounds(variable: Variable, arrays: Mapping[str, Array], sizes: Mapping[str, float]) -> tuple[float, float]:
    """Return the bounds of a variable, which may depend on sizes and other arguments."""
    if variable.kind is Kind.INDEX:
        return 0.0, sizes[variable.of or ""] - 1
    return _bound_value(variable.low, arrays, sizes), _bound_value(variable.high, arrays, sizes)


def _bound_value(bound: float | str, arrays: Mapping[str, Array], sizes: Mapping[str, float]) -> float:
    if isinstance(bound, str):
        return sizes[bound] if bound in sizes else arrays[bound].numbers[0]
    return bound


def _is_in_domain(variable: Variable, number: float, low: float, high: float, rounding: float) -> bool:
    """Return whether a number is in the domain of a variable, up to the relative error `rounding`."""
    if variable.extra is not None and number == variable.extra:
        return True
    if variable.kind in (Kind.INT, Kind.INDEX, Kind.MASK, Kind.SIZE):
        return number.is_integer() and low <= number <= high
    # An example that was printed in its dtype may be one rounding outside of a bound.
    slack = rounding * (1 if variable.kind in DISTRIBUTIONS else max(abs(low), abs(high)))
    slack = slack if math.isfinite(slack) else 0.0
    return low - slack <= number <= high + slack


def _sums_to_one(variable: Variable, array: Array) -> bool:
    """Return whether the probabilities along the last axis sum to 1, up to `SUM_ERROR`."""
    size = array.shape[-1]
    rows = (array.numbers[start : start + size] for start in range(0, len(array.numbers), size)) if size else ()
    distributions = (map(math.exp, row) if variable.kind is Kind.LOGPROB else row for row in rows)
    return all(abs(math.fsum(distribution) - 1) <= SUM_ERROR for distribution in distributions)
