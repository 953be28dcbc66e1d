"""Describes in a few words how arrays differ: by a factor or an offset, in their order, or at some places only."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pv.contract.wording import listed
from pv.equations.arrays import Tensor, torch

MAX_PLACES = 6
MAX_ORDER = 64
"""The longest axis whose order is compared."""
CLOSE = 1e-5
Named = Mapping[str, Tensor | None]


def cause(found: Tensor, wanted: Tensor, allowed: Tensor, axes: Sequence[str] = ()) -> str:
    """Return how `found` differs from `wanted` by more than `allowed`, all float64 of one shape; "" if it is not clear.

    axes: the names of its axes.
    """
    if wanted.dim() == 0 or wanted.numel() < 2:
        return ""
    names = list(axes) or [f"axis {place}" for place in range(wanted.dim())]
    kinds = (_factor, _offset) if found.isfinite().all() and wanted.isfinite().all() else ()
    texts = (text for each in kinds if (text := each(found, wanted, allowed)))
    return next(texts, "") or _order(found, wanted, allowed, names) or _places(found, wanted, allowed, names)


def between(left: Any, right: Any) -> str:
    """Return how the first of two tensors, or two mappings of tensors, differs from the second; "" if unclear."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return "; ".join(_of_names(left, right))
    if not _real(left, right):
        return ""
    if left.shape != right.shape:
        return f"shapes {list(left.shape)} and {list(right.shape)}"
    found, wanted = (each.detach().cpu().double() for each in (left, right))
    return cause(found, wanted, torch.full_like(wanted, CLOSE * _largest(wanted)))


def furthest(left: Any, right: Any) -> str:
    """Return the elements of two tensors of one shape where they differ most; "" if there are none."""
    if not _real(left, right) or left.shape != right.shape or not left.dim() or not left.numel():
        return ""
    found, wanted = (each.detach().cpu().double() for each in (left, right))
    apart = (found - wanted).abs().nan_to_num(nan=math.inf).flatten()
    place = [int(index) for index in torch.unravel_index(apart.argmax(), found.shape)]
    return f"at {place} it is {found[tuple(place)]:.7g}, expected {wanted[tuple(place)]:.7g}"


def _real(*values: Any) -> bool:
    return all(isinstance(value, Tensor) and not value.is_complex() for value in values)


def _of_names(left: Mapping[Any, Any], right: Mapping[Any, Any]) -> Iterator[str]:
    """Yield which names two mappings do not share, and which of the others differ, with one cause if it is the same."""
    for side, names in (
        ("first", [n for n in left if n not in right]),
        ("second", [n for n in right if n not in left]),
    ):
        if names:
            yield f"only in the {side}: {listed(names)}"
    tensors = [name for name in left if isinstance(left[name], Tensor) and isinstance(right.get(name), Tensor)]
    apart = [name for name in tensors if not _equal(left[name], right[name])]
    if apart:
        causes = {between(left[name], right[name]) for name in apart}
        why = f": {causes.pop()}" if len(causes) == 1 and any(causes) else ""
        yield f"{len(apart)} of {len(tensors)} differ: {listed(apart)}{why}"


def _equal(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and torch.allclose(left.double(), right.double(), rtol=CLOSE, atol=0.0)


def difference(found: Named, wanted: Mapping[str, Tensor]) -> float:
    """Return the largest difference of named arrays, relative to the largest element of each. None is zero."""
    return max(_off(found.get(name), each) for name, each in wanted.items())


def _off(found: Tensor | None, wanted: Tensor) -> float:
    found = torch.zeros_like(wanted) if found is None else found
    size = max(float(found.abs().max()), float(wanted.abs().max()))
    return float((found - wanted).abs().max()) / size if size else 0.0


def ratio(found: Named, wanted: Mapping[str, Tensor], allowed: float) -> float | None:
    """Return by what named arrays are multiplied, up to a relative difference; None if they are not a multiple."""
    size = _norm(wanted)
    by = _norm(found) / size if size else 0.0
    scaled = (
        each
        for each in (by, -by)
        if difference(found, {name: array * each for name, array in wanted.items()}) < allowed
    )
    return next(scaled, None)


def _norm(arrays: Named) -> float:
    return math.sqrt(sum(float(each.double().pow(2).sum()) for each in arrays.values() if each is not None))


def _largest(array: Tensor) -> float:
    finite = array[array.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 1.0


def _factor(found: Tensor, wanted: Tensor, allowed: Tensor) -> str:
    if int((wanted.abs() > allowed).sum()) < 2:
        return ""
    by = float((found * wanted).sum() / wanted.pow(2).sum())
    if ((found - by * wanted).abs() > allowed * max(1.0, abs(by))).any():
        return ""
    if ((found.abs() <= allowed).all()) or by == 0:
        return "it is zero everywhere"
    return "it has the opposite sign everywhere" if abs(by + 1) < CLOSE else f"it is {by:.5g} times that everywhere"


def _offset(found: Tensor, wanted: Tensor, allowed: Tensor) -> str:
    by = float((found - wanted).mean())
    if ((found - wanted - by).abs() > allowed).any():
        return ""
    return f"it is {'larger' if by > 0 else 'smaller'} by {abs(by):.5g} everywhere"


def _order(found: Tensor, wanted: Tensor, allowed: Tensor, names: Sequence[str]) -> str:
    """Return the order along an axis in which the same values are found, if it is another one."""
    for axis, name in enumerate(names):
        order = _matched(_rows(found, axis), _rows(wanted, axis), allowed.max())
        if order is not None and order != sorted(order):
            return f"it has the same values in another order along {name}: {_named_order(order)}"
    return ""


def _rows(array: Tensor, axis: int) -> Tensor:
    """Return an array as one row for each index along an axis."""
    return array.movedim(axis, 0).reshape(array.shape[axis], -1)


def _matched(found: Tensor, wanted: Tensor, allowed: Tensor) -> list[int] | None:
    """Return for each row of `found` which row of `wanted` it is; None if they are not a permutation."""
    if not 2 <= len(wanted) <= MAX_ORDER:
        return None
    equal = ((found[:, None] - wanted[None]).abs() <= allowed).all(-1)
    order = [int(row.double().argmax()) for row in equal]
    return order if equal.any(1).all() and sorted(order) == list(range(len(order))) else None


def _named_order(order: list[int]) -> str:
    size = len(order)
    if order == list(range(size))[::-1]:
        return "reversed"
    if all(each == (order[0] + place) % size for place, each in enumerate(order)):
        return f"shifted by {min(order[0], size - order[0])}"
    return str(order) if size <= MAX_PLACES else "permuted"


def _places(found: Tensor, wanted: Tensor, allowed: Tensor, names: Sequence[str]) -> str:
    """Return the indices along each axis to which the difference is confined."""
    same = (found == wanted) | ((found - wanted).abs() <= allowed)
    parts = []
    for axis, name in enumerate(names):
        wrong = _rows(~same, axis).any(1)
        indices = [int(each) for each in wrong.nonzero().flatten()]
        if 0 < len(indices) < len(wrong) and len(indices) <= MAX_PLACES:
            last = ", the last" if indices == [len(wrong) - 1] else ""
            parts.append(f"{name} {', '.join(map(str, indices))}{last}")
    return f"it differs only at {' and '.join(parts)}" if parts else ""
