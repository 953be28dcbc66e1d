"""Finds the arguments that code changed: arrays that it wrote into, and containers that it filled or emptied."""

from collections.abc import Iterator
from typing import Any

from pv.equations.arrays import Tensor


class Arguments:
    """The arguments of calls, each with a copy of what it was."""

    def __init__(self) -> None:
        self._copies: list[tuple[str, Any, Any]] = []

    def add(self, text: str, value: Any) -> None:
        """Keep a copy of an argument, which the call writes as `text`."""
        self._copies.append((text, value, _copy(value)))

    def changed(self) -> Iterator[str]:
        """Yield the texts of the arguments that are not what they were."""
        return (text for text, value, before in self._copies if not same(value, before))


def same(one: Any, other: Any) -> bool:
    """Return whether arrays have the same dtype and numbers, and containers the same items; NaN is equal to NaN."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        alike = one.shape == other.shape and one.dtype == other.dtype
        return alike and bool(((one == other) | (one.isnan() & other.isnan())).all())
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, dict):
        return list(one) == list(other) and same(list(one.values()), list(other.values()))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_copy, value))
    return value
