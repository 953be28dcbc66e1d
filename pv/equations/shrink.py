"""Shrinking of a failing example by its values: fewer slices of each axis, then simpler numbers."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pv.equations.arrays import Tensor, torch
from pv.equations.domain import DISCRETE, DISTRIBUTIONS, Kind, Variable, axis_bounds
from pv.equations.draw import Example, bounds, fitted

MAX_TRIES = 600
_SIMPLE = (0.0, 1.0, 2.0, 0.5)


@dataclass
class Shrinker:
    """A greedy search that accepts an example if it still fails and has a strictly lower cost.

    fails: returns whether an example of the domain fails; it must not raise.
    """

    variables: Mapping[str, Variable]
    fails: Callable[[Example], bool]
    tries: int = 0
    _seen: set[tuple[object, ...]] = field(default_factory=set)

    def smallest(self, example: Example) -> Example:
        """Return the simplest failing example found in at most `MAX_TRIES` calls of `fails`."""
        best = example
        while True:
            before = best
            for step in (self._fewer_slices, self._constant_arrays, self._simpler_elements):
                best = step(best)
            if best is before or self.tries >= MAX_TRIES:
                return best

    def _better(self, best: Example, other: Example) -> bool:
        if self.tries >= MAX_TRIES or _cost(other) >= _cost(best):
            return False
        key = _key(other)
        if key in self._seen:
            return False
        self._seen.add(key)
        self.tries += 1
        return self.fails(other)

    def _fewer_slices(self, best: Example) -> Example:
        least = {axis: low for axis, (low, _) in axis_bounds(self.variables).items()}
        for axis in best.sizes:
            for kept in _choices(best.sizes[axis], least[axis]):
                other = self._keep(best, axis, kept)
                if other is not None and self._better(best, other):
                    best = other
                    break
        return best

    def _keep(self, example: Example, axis: str, kept: list[int]) -> Example | None:
        arrays = {}
        for name, array in example.arrays.items():
            variable = self.variables[name]
            if axis in variable.axes:
                array = array.index_select(variable.axes.index(axis), torch.tensor(kept))
            if variable.of == axis:
                array = _renumbered(array, kept)
            arrays[name] = array
        if any(v.kind in DISTRIBUTIONS and v.axes[-1:] == (axis,) for v in self.variables.values()):
            arrays = self._normalised(arrays)
        return self._fitted(replace(example, arrays=arrays, sizes={**example.sizes, axis: len(kept)}))

    def _fitted(self, example: Example) -> Example:
        """Return the example with numbers representable in its dtype."""
        arrays = {
            name: fitted(self.variables[name], array, self._range(name, example), example.dtype)
            for name, array in example.arrays.items()
        }
        return replace(example, arrays=arrays)

    def _normalised(self, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the arrays with distributions that sum to 1 again after a slice was removed."""
        kinds = {name: self.variables[name].kind for name in arrays}
        new = dict(arrays)
        for name, array in arrays.items():
            if kinds[name] is Kind.LOGPROB:
                new[name] = array.log_softmax(-1)
            elif kinds[name] is Kind.PROB:
                new[name] = (array / array.sum(-1, keepdim=True)).nan_to_num(1.0)
        return new

    def _constant_arrays(self, best: Example) -> Example:
        """Return the example with arrays of one simple value, or rounded, where it still fails."""
        for name in best.arrays:
            if self.variables[name].kind in DISTRIBUTIONS:
                continue
            for constant in self._constants(name, best):
                other = self._fitted(replace(best, arrays={**best.arrays, name: constant}))
                if self._better(best, other):
                    best = other
                    break
        return best

    def _constants(self, name: str, best: Example) -> Iterator[Tensor]:
        array, (low, high) = best.arrays[name], self._range(name, best)
        for value in (0.0, 1.0) if self.variables[name].kind in DISCRETE else _SIMPLE:
            if low <= value <= high:
                yield torch.full_like(array, value)
        if array.is_floating_point():
            yield array.round().clamp(low, high) + 0.0  # no -0.0

    def _simpler_elements(self, best: Example) -> Example:
        for name in best.arrays:
            if self.variables[name].kind in DISTRIBUTIONS:
                continue
            for place in range(best.arrays[name].numel()):
                best = self._simpler_element(best, name, place)
        return best

    def _simpler_element(self, best: Example, name: str, place: int) -> Example:
        low, high = self._range(name, best)
        flat = best.arrays[name].flatten()
        for value in sorted(_simpler(float(flat[place]), self.variables[name].kind), key=_complexity):
            if low <= value <= high:
                changed = flat.clone()
                changed[place] = value
                array = changed.reshape(best.arrays[name].shape)
                other = self._fitted(replace(best, arrays={**best.arrays, name: array}))
                if self._better(best, other):
                    return other
        return best

    def _range(self, name: str, example: Example) -> tuple[float, float]:
        variable = self.variables[name]
        if variable.kind is Kind.MASK:
            return 0.0, 1.0
        if variable.kind is Kind.INDEX:
            return 0.0, float(example.sizes[variable.of or ""] - 1)
        return bounds(variable, example.sizes, example.arrays)


def _choices(size: int, least: int) -> Iterator[list[int]]:
    """Yield the slices to keep: as few as allowed, then all but one."""
    if size > least:
        yield from ([*range(start, start + least)] for start in range(size - least + 1))
    if size > least + 1:
        yield from ([i for i in range(size) if i != left_out] for left_out in range(size))


def _renumbered(array: Tensor, kept: list[int]) -> Tensor:
    new = {old: place for place, old in enumerate(kept)}
    return torch.tensor([new.get(i, 0) if i >= 0 else i for i in array.flatten().tolist()]).reshape(array.shape)


def _simpler(value: float, kind: Kind) -> set[float]:
    if kind in (Kind.INDEX, Kind.MASK):
        return {float(v) for v in (0, 1) if _complexity(v) < _complexity(value)}
    halves = {float(round(value)), float(round(value / 2)), float(torch.tensor(float(f"{value:.1e}")))}
    nearer = {value - math.copysign(1, value)} if abs(value) > 2 and value == round(value) else set()
    candidates = {*_SIMPLE, *(-v for v in _SIMPLE if v), *halves, *nearer}
    if kind is Kind.INT:
        candidates = {v for v in candidates if v == int(v)}
    return {v for v in candidates if _complexity(v) < _complexity(value)}


def _complexity(value: float) -> float:
    if value == 0:
        return 0.0
    fraction = value != round(value)
    return 1 + abs(value) + (20 + 2 * len(repr(value))) * fraction + 0.5 * (value < 0)


def _cost(example: Example) -> tuple[int, float]:
    """Return the number of elements, then the complexity of their values and of the sizes: no array may have one."""
    elements = sum(array.numel() for array in example.arrays.values())
    values = sum(_complexity(float(v)) for array in example.arrays.values() for v in array.flatten().tolist())
    return elements, values + sum(example.sizes.values())


def _key(example: Example) -> tuple[object, ...]:
    arrays = ((name, tuple(array.shape), *array.flatten().tolist()) for name, array in example.arrays.items())
    return *example.sizes.items(), *arrays
