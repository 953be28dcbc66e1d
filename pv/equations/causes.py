"""Describe in a few words how arrays differ: by a factor, by an offset, in the order, or only at some indices."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

from pv.contract.wording import listed
from pv.equations.arrays import Tensor, torch

MAX_INDICES = 6
"""Largest number of indices of an axis that are listed."""
MAX_ORDER = 64
"""Length of the longest axis along which permutations are searched."""
CLOSE = 1e-5
"""Relative difference up to which numbers count as equal."""
NamedArrays = Mapping[str, Tensor | None]
"""Arrays by name, such as gradients; None for a missing array."""


def cause(actual: Tensor, expected: Tensor, allowed: Tensor, axes: Sequence[str] = ()) -> str:
    """Describe how `actual` differs from `expected`; "" if there is no short description.

    Differences up to `allowed` count as equal.

    Args:
        actual: The tensor to judge, float64.
        expected: The correct tensor, float64, of the same shape.
        allowed: The allowed absolute error of each element, broadcastable to this shape.
        axes: The names of the axes for the text; if empty, axes are numbered.
    """
    if expected.dim() == 0 or expected.numel() < 2:
        return ""
    names = list(axes) or [f"axis {axis}" for axis in range(expected.dim())]
    # Try the most specific explanation first: a factor explains all elements by one number.
    kinds = (_factor, _offset) if actual.isfinite().all() and expected.isfinite().all() else ()
    text = next(filter(None, (explain(actual, expected, allowed) for explain in kinds)), "")
    return text or _order(actual, expected, allowed, names) or _locations(actual, expected, allowed, names)


def describe_difference(left: object, right: object) -> str:
    """Describe how two tensors, or two mappings of tensors by name, differ; "" if there is no short description."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return "; ".join(_differing_names(left, right))
    if not (_is_real(left) and _is_real(right)):
        return ""
    if left.shape != right.shape:
        return f"shapes {list(left.shape)} and {list(right.shape)}"
    actual, expected = (tensor.detach().cpu().double() for tensor in (left, right))
    return cause(actual, expected, torch.full_like(expected, CLOSE * _largest(expected)))


def describe_largest_difference(left: object, right: object) -> str:
    """Describe the element at which two tensors differ most; "" unless both are real tensors of one shape with axes."""
    if not (_is_real(left) and _is_real(right)) or left.shape != right.shape or not left.dim() or not left.numel():
        return ""
    actual, expected = (tensor.detach().cpu().double() for tensor in (left, right))
    # The difference of equal infinities is NaN, so equal elements are set to 0 first. A NaN on one side counts as the
    # largest difference.
    same = (actual == expected) | (actual.isnan() & expected.isnan())
    distances = (actual - expected).abs().nan_to_num(nan=math.inf).masked_fill(same, 0.0).flatten()
    indices = tuple(int(index) for index in torch.unravel_index(distances.argmax(), actual.shape))
    return f"at {[*indices]} the value is {actual[indices]:.7g}, expected {expected[indices]:.7g}"


def _is_real(value: object) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and not value.is_complex()


def _differing_names(left: Mapping[str, object], right: Mapping[str, object]) -> Iterator[str]:
    """Describe the names that only one mapping has, then the common names whose tensors differ.

    If all differing tensors have the same cause, the last description ends with this cause.
    """
    for side, names in (
        ("first", [n for n in left if n not in right]),
        ("second", [n for n in right if n not in left]),
    ):
        if names:
            yield f"only in the {side}: {listed(names)}"
    tensors = {
        name: (one, other)
        for name, one in left.items()
        if isinstance(one, Tensor) and isinstance(other := right.get(name), Tensor)
    }
    differing = {name: pair for name, pair in tensors.items() if not _equal(*pair)}
    if differing:
        causes = {describe_difference(*pair) for pair in differing.values()}
        common = f": {causes.pop()}" if len(causes) == 1 and any(causes) else ""
        yield f"{len(differing)} of {len(tensors)} differ: {listed([*differing])}{common}"


def _equal(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and torch.allclose(left.double(), right.double(), rtol=CLOSE, atol=0.0)


def difference(actual: NamedArrays, expected: Mapping[str, Tensor]) -> float:
    """Return the largest relative difference of named arrays.

    The differences of each array are divided by the largest absolute element of the actual and the expected array.

    Args:
        actual: The arrays by name; None and a missing name count as zeros.
        expected: The correct arrays by name.
    """
    return max(_relative_difference(actual.get(name), array) for name, array in expected.items())


def _relative_difference(actual: Tensor | None, expected: Tensor) -> float:
    actual = torch.zeros_like(expected) if actual is None else actual
    size = max(float(actual.abs().max()), float(expected.abs().max()))
    return float((actual - expected).abs().max()) / size if size else 0.0


def ratio(actual: NamedArrays, expected: Mapping[str, Tensor], allowed: float) -> float | None:
    """Return the factor by which all arrays are multiples of the expected arrays; None if there is no such factor.

    Args:
        actual: The arrays by name; None counts as zeros.
        expected: The correct arrays by name.
        allowed: The allowed difference, relative to the largest absolute element of each array.
    """
    # The norms give the absolute value of the factor, so only its sign must be tried.
    size = _norm(expected)
    absolute = _norm(actual) / size if size else 0.0
    factors = (
        factor
        for factor in (absolute, -absolute)
        if difference(actual, {name: array * factor for name, array in expected.items()}) < allowed
    )
    return next(factors, None)


def _norm(arrays: NamedArrays) -> float:
    return math.sqrt(sum(float(array.double().pow(2).sum()) for array in arrays.values() if array is not None))


def _largest(array: Tensor) -> float:
    finite = array[array.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 1.0


def _factor(actual: Tensor, expected: Tensor, allowed: Tensor) -> str:
    """Describe the factor between two arrays; "" if there is none, or fewer than two expected elements are not 0."""
    if int((expected.abs() > allowed).sum()) < 2:
        return ""
    # The least-squares factor: it minimises |actual - factor * expected|.
    factor = float((actual * expected).sum() / expected.pow(2).sum())
    if ((actual - factor * expected).abs() > allowed * max(1.0, abs(factor))).any():
        return ""
    if (actual.abs() <= allowed).all():
        return "all elements are zero"
    opposite = abs(factor + 1) < CLOSE
    return "all elements have the opposite sign" if opposite else f"all elements are multiplied by {factor:.5g}"


def _offset(actual: Tensor, expected: Tensor, allowed: Tensor) -> str:
    """Describe the constant by which all elements are larger or smaller; "" if there is none."""
    offset = float((actual - expected).mean())
    if ((actual - expected - offset).abs() > allowed).any():
        return ""
    return f"all elements are {'larger' if offset > 0 else 'smaller'} by {abs(offset):.5g}"


def _order(actual: Tensor, expected: Tensor, allowed: Tensor, names: Sequence[str]) -> str:
    """Describe a permutation along one axis that maps the expected values to the actual ones; "" if there is none."""
    for axis, name in enumerate(names):
        order = _matching_rows(_rows(actual, axis), _rows(expected, axis), allowed.max())
        if order is not None and order != sorted(order):
            return f"the values are in a different order along {name}: {_describe_order(order)}"
    return ""


def _rows(array: Tensor, axis: int) -> Tensor:
    """Return an array reshaped to [indices of an axis, all other elements]."""
    return array.movedim(axis, 0).reshape(array.shape[axis], -1)


def _matching_rows(actual: Tensor, expected: Tensor, allowed: Tensor) -> list[int] | None:
    """Return the index of the equal row of `expected` for each row of `actual`; None if there is no permutation."""
    if not 2 <= len(expected) <= MAX_ORDER:
        return None
    # Compare every row with every row: in a permutation, every actual row equals exactly one expected row.
    equal = ((actual[:, None] - expected[None]).abs() <= allowed).all(-1)
    order = [int(row.double().argmax()) for row in equal]
    return order if equal.any(1).all() and sorted(order) == list(range(len(order))) else None


def _describe_order(order: list[int]) -> str:
    """Describe a permutation: `reversed`, `shifted by N`, the indices of a short axis, or `permuted`."""
    size = len(order)
    if order == list(range(size))[::-1]:
        return "reversed"
    if all(row == (order[0] + index) % size for index, row in enumerate(order)):
        return f"shifted by {min(order[0], size - order[0])}"
    return str(order) if size <= MAX_INDICES else "permuted"


def _locations(actual: Tensor, expected: Tensor, allowed: Tensor, names: Sequence[str]) -> str:
    """List the indices at which elements differ, for every axis with few such indices; "" if no axis has few."""
    # Compare with == too, since the difference of equal infinities is NaN.
    same = (actual == expected) | ((actual - expected).abs() <= allowed)
    parts = []
    for axis, name in enumerate(names):
        wrong = _rows(~same, axis).any(1)
        indices = [int(index) for index in wrong.nonzero().flatten()]
        if 0 < len(indices) < len(wrong) and len(indices) <= MAX_INDICES:
            last = " (the last)" if indices == [len(wrong) - 1] else ""
            parts.append(f"index {', '.join(map(str, indices))}{last} of {name}")
    return f"only the elements at {' and '.join(parts)} differ" if parts else ""
