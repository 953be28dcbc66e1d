"""Draw random examples of a domain, and shrink an example that fails.

`Drawer` draws the sizes first, then the variables in order. It draws arrays in one of several styles. Every number is
representable in the dtype of the arrays that the code gets, so that code and equation start from the same values.
`Shrinker` removes slices of axes, and replaces numbers by simpler ones.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pv.equations.arrays import Tensor, torch
from pv.equations.domain import DISCRETE, DISTRIBUTIONS, Kind, Variable, axis_bounds
from pv.equations.tensors import F64

SMALLEST_SIZE = 0.1
"""Probability that the smallest size of an axis is chosen; otherwise, any of its sizes is drawn."""
EXTRA_INDEX = 0.7
"""Probability that some elements of an index array get the extra value, such as -100, if the variable has one."""
ZERO_MASS = 0.2
"""Probability that some outcomes of a distribution have the probability 0. It is not used for log-probabilities."""


@dataclass(frozen=True, slots=True)
class Example:
    """One input of an equation and its code.

    Attributes:
        arrays: The values of the variables by name, as float64, int64 or bool tensors; a number has the shape ().
        sizes: The size of each axis.
        dtype: The dtype of floating-point arrays that are passed to the code.
    """

    arrays: Mapping[str, Tensor]
    sizes: Mapping[str, int]
    dtype: str = "float32"


class Drawer:
    """Draws examples of a domain, reproducibly from a seed.

    Args:
        variables: The variables of the domain, by name.
        seed: The seed.
        dtypes: The dtypes of the examples; successive examples take them in turn.
    """

    def __init__(self, variables: Mapping[str, Variable], seed: int, dtypes: Sequence[str] = ("float32",)) -> None:
        self._variables, self._bounds = variables, axis_bounds(variables)
        self._random = random.Random(seed)
        self._generator = torch.Generator().manual_seed(seed)
        self._dtypes = itertools.cycle(dtypes)

    def example(self) -> Example:
        """Draw the next example. It need not satisfy `requires`."""
        # Draw sizes before arrays, and variables in order, since a bound may name a size or an earlier scalar.
        dtype = next(self._dtypes)
        sizes = {axis: self._size(low, high) for axis, (low, high) in self._bounds.items()}
        arrays: dict[str, Tensor] = {}
        for name, variable in self._variables.items():
            if variable.kind is not Kind.SIZE:
                arrays[name] = self._array(variable, sizes, arrays)
                arrays[name] = round_to_dtype(variable, arrays[name], bounds(variable, sizes, arrays), dtype)
        return Example(arrays, sizes, dtype)

    def _size(self, low: int, high: int) -> int:
        return low if self._random.random() < SMALLEST_SIZE else self._random.randint(low, high)

    def _array(self, variable: Variable, sizes: Mapping[str, int], earlier: Mapping[str, Tensor]) -> Tensor:
        """Draw the array of one variable; `earlier` has the arrays of the preceding variables."""
        shape = tuple(sizes[axis] for axis in variable.axes)
        if variable.kind is Kind.INDEX:
            return self._index(variable, shape, sizes)
        if variable.kind is Kind.MASK:
            return self._uniform(shape) < self._random.choice([0.2, 0.5, 0.9, 1.0])
        if variable.kind in DISTRIBUTIONS:
            return self._distribution(variable.kind, shape)
        low, high = bounds(variable, sizes, earlier)
        if variable.kind is Kind.INT:
            return self._integers(low, high, shape)
        if not shape:
            return torch.tensor(self._scalar(low, high), dtype=F64)
        return self._styled_array(low, high, shape, earlier)

    def _index(self, variable: Variable, shape: tuple[int, ...], sizes: Mapping[str, int]) -> Tensor:
        """Draw indices of an axis, some of them replaced by the extra value."""
        drawn = self._randint(0, sizes[variable.of or ""] - 1, shape)
        if variable.extra is not None and self._random.random() < EXTRA_INDEX:
            extra = self._uniform(shape) < self._random.choice([0.2, 0.5])
            drawn = torch.where(extra, variable.extra, drawn)
        return drawn

    def _distribution(self, kind: Kind, shape: tuple[int, ...]) -> Tensor:
        """Draw probabilities or log-probabilities along the last axis."""
        # Scale random logits by 0 for a uniform distribution, up to 20 for one that is nearly one-hot.
        logs = (self._normal(shape) * self._random.choice([0, 1, 5, 20])).log_softmax(-1)
        if kind is Kind.LOGPROB:
            return logs
        if self._random.random() < ZERO_MASS:
            # The most probable outcome keeps a positive probability, so that the distribution can be normalised.
            without_mass = (self._uniform(shape) < 0.5) & (logs < logs.amax(-1, keepdim=True))
            logs = logs.masked_fill(without_mass, -math.inf).log_softmax(-1)
        return logs.exp()

    def _integers(self, low: float, high: float, shape: tuple[int, ...]) -> Tensor:
        """Draw whole numbers within bounds, often all at one end of the range."""
        first, last = math.ceil(low), math.floor(high)
        if self._random.random() < 0.2:
            return torch.full(shape, float(self._random.choice([first, last])), dtype=F64)
        return self._randint(first, last, shape).to(F64)

    def _scalar(self, low: float, high: float) -> float:
        """Draw a number within bounds."""
        # 12 %: an end of the range, where faults are likely. 4 %: the number 1, rarely, since it hides faults (such as
        # in a temperature). 44 %: uniform. 40 %: log-uniform, to get numbers of every order of magnitude.
        chance = self._random.random()
        if chance < 0.12:
            return low if chance < 0.06 else high
        if chance < 0.16:
            return min(max(1.0, low), high)
        if chance < 0.6 or low <= 0:
            return self._random.uniform(low, high)
        return math.exp(self._random.uniform(math.log(low), math.log(high)))

    def _styled_array(self, low: float, high: float, shape: tuple[int, ...], earlier: Mapping[str, Tensor]) -> Tensor:
        """Draw an array in a random style, such as ties, peaks, or (nearly) equal to an earlier array."""
        # Normal numbers hide many faults: a wrong tie rule needs ties, an overflow needs large values, and a divergence
        # near 0 needs nearly equal distributions. `round_to_dtype` clamps numbers outside of the bounds afterwards.
        same_shape = [array for array in earlier.values() if array.shape == shape and array.dtype == F64]
        style = self._random.choice(["flat", "ties", "wide", "peaked", "alike", "shifted", "normal", "normal"])
        largest = min(max(abs(low), abs(high)), 1e6)
        match style:
            case "flat":
                return torch.full(shape, self._random.gauss(0, 3), dtype=F64)
            case "ties":
                return torch.randint(-2, 3, shape, generator=self._generator).to(F64)
            case "wide":
                return self._normal(shape) * largest
            case "peaked":
                drawn = self._normal(shape) * 0.1
                drawn[..., self._random.randrange(shape[-1])] = largest
                return drawn
            case "alike" if same_shape:
                near = self._normal(shape) * 0.01 if self._random.random() < 0.5 else 0.0
                return self._random.choice(same_shape) + near
            case "shifted":
                return self._normal(shape) * 10 + self._random.gauss(0, 1) * largest / 2
            case _:
                return self._normal(shape) * self._random.choice([1.0, 5.0])

    def _randint(self, first: int, last: int, shape: tuple[int, ...]) -> Tensor:
        # Draw single numbers with Python's generator, which gives the same numbers if PyTorch is not installed.
        if not shape:
            return torch.tensor(self._random.randint(first, last))
        return torch.randint(first, last + 1, shape, generator=self._generator)

    def _uniform(self, shape: tuple[int, ...]) -> Tensor:
        if not shape:
            return torch.tensor(self._random.random(), dtype=F64)
        return torch.rand(shape, generator=self._generator, dtype=F64)

    def _normal(self, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=self._generator, dtype=F64)


def bounds(variable: Variable, sizes: Mapping[str, int], scalars: Mapping[str, Tensor]) -> tuple[float, float]:
    """Return the bounds of a variable as numbers.

    If the upper bound is below the lower bound, both are the lower bound.

    Args:
        variable: The variable, whose bounds may name a size or a scalar.
        sizes: The size of each axis of the example.
        scalars: The arrays of the example by name, which contain the scalars.
    """

    def number(bound: float | str) -> float:
        if isinstance(bound, float):
            return bound
        return float(sizes[bound]) if bound in sizes else float(scalars[bound])

    low, high = number(variable.low), number(variable.high)
    return low, max(low, high)


def round_to_dtype(variable: Variable, array: Tensor, limits: tuple[float, float], dtype: str) -> Tensor:
    """Round an array to numbers that a dtype can represent and that are within limits.

    Args:
        variable: The variable of the array. Variables without axes are rounded to float32 instead of `dtype`.
        array: The drawn numbers, float64. Arrays of integers and booleans are returned unchanged.
        limits: The lowest and the highest number allowed; distributions are not clamped.
        dtype: The name of the dtype of the arrays that the code gets.

    Returns:
        The nearest numbers of the dtype within the limits, as float64. If no number of the dtype is within the limits,
        a neighbouring number outside.
    """
    if not array.is_floating_point():
        return array
    torch_dtype = getattr(torch, dtype if variable.axes else "float32")
    if variable.kind in DISTRIBUTIONS:
        return array.to(torch_dtype).double()
    # Rounding to a narrow dtype may move a number out of the limits, so clamp to the outermost numbers inside them.
    low, high = (
        _nearest_inside(bound, towards, torch_dtype) for bound, towards in zip(limits, reversed(limits), strict=True)
    )
    return array.to(torch_dtype).double().clamp(low, max(low, high))


def _nearest_inside(bound: float, towards: float, dtype: torch.dtype) -> float:
    """Return the number of a dtype that is nearest to a bound and not outside of it; `towards` is the other bound."""
    rounded = torch.tensor(bound, dtype=F64).to(dtype)
    is_outside = rounded.double() < bound if towards > bound else rounded.double() > bound
    return float((torch.nextafter(rounded, torch.tensor(towards, dtype=dtype)) if is_outside else rounded).double())


MAX_TRIES = 600
"""Largest number of examples that a shrinker tries."""
_SIMPLE = (0.0, 1.0, 2.0, 0.5)
"""The numbers that a shrinker tries as a replacement of any number."""


@dataclass
class Shrinker:
    """A greedy search for a simpler failing example: each step must still fail and have a strictly lower cost.

    Attributes:
        variables: The variables of the domain.
        fails: Returns whether an example of the domain fails; it must not raise.
        tries: The number of calls of `fails` so far.
    """

    variables: Mapping[str, Variable]
    fails: Callable[[Example], bool]
    tries: int = 0
    _seen: set[tuple[object, ...]] = field(default_factory=set)

    def smallest(self, example: Example) -> Example:
        """Return the simplest failing example that the search finds with at most `MAX_TRIES` calls of `fails`."""
        best = example
        # Repeat the three steps, large reductions first, until none of them finds a simpler example.
        while True:
            before = best
            for step in (self._remove_slices, self._simplify_arrays, self._simplify_elements):
                best = step(best)
            if best is before or self.tries >= MAX_TRIES:
                return best

    def _accepts(self, candidate: Example, best: Example) -> bool:
        """Try a candidate, and return whether it has a lower cost than `best` and still fails."""
        # The search ends, since the cost decreases strictly. No example is tried twice.
        if self.tries >= MAX_TRIES or _cost(candidate) >= _cost(best):
            return False
        key = _key(candidate)
        if key in self._seen:
            return False
        self._seen.add(key)
        self.tries += 1
        return self.fails(candidate)

    def _remove_slices(self, best: Example) -> Example:
        """Return the example with fewer slices along each axis, as long as it still fails."""
        smallest_sizes = {axis: low for axis, (low, _) in axis_bounds(self.variables).items()}
        for axis in best.sizes:
            for indices in _slice_choices(best.sizes[axis], smallest_sizes[axis]):
                candidate = self._keep_slices(best, axis, indices)
                if self._accepts(candidate, best):
                    best = candidate
                    break
        return best

    def _keep_slices(self, example: Example, axis: str, indices: list[int]) -> Example:
        """Return the example with only the slices `indices` along an axis."""
        arrays = {}
        for name, array in example.arrays.items():
            variable = self.variables[name]
            if axis in variable.axes:
                array = array.index_select(variable.axes.index(axis), torch.tensor(indices))
            # Index variables refer to slices by number, so renumber the remaining slices.
            if variable.of == axis:
                array = _renumber(array, indices)
            arrays[name] = array
        if any(v.kind in DISTRIBUTIONS and v.axes[-1:] == (axis,) for v in self.variables.values()):
            arrays = self._normalise(arrays)
        return self._round_to_dtypes(replace(example, arrays=arrays, sizes={**example.sizes, axis: len(indices)}))

    def _round_to_dtypes(self, example: Example) -> Example:
        """Return the example with numbers representable in its dtype."""
        arrays = {
            name: round_to_dtype(self.variables[name], array, self._range(name, example), example.dtype)
            for name, array in example.arrays.items()
        }
        return replace(example, arrays=arrays)

    def _normalise(self, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the arrays with every distribution normalised, since a slice was removed."""
        kinds = {name: self.variables[name].kind for name in arrays}
        new = dict(arrays)
        for name, array in arrays.items():
            if kinds[name] is Kind.LOGPROB:
                new[name] = array.log_softmax(-1)
            elif kinds[name] is Kind.PROB:
                # If only outcomes with probability 0 are left, the distribution becomes uniform.
                new[name] = (array / array.sum(-1, keepdim=True)).nan_to_num(1.0 / array.shape[-1])
        return new

    def _simplify_arrays(self, best: Example) -> Example:
        """Return the example with arrays filled with one simple value, or rounded, as long as it still fails."""
        for name in best.arrays:
            if self.variables[name].kind in DISTRIBUTIONS:
                continue
            for array in self._simpler_arrays(name, best):
                candidate = self._round_to_dtypes(replace(best, arrays={**best.arrays, name: array}))
                if self._accepts(candidate, best):
                    best = candidate
                    break
        return best

    def _simpler_arrays(self, name: str, best: Example) -> Iterator[Tensor]:
        """Yield simpler arrays for a variable: constant arrays, and the rounded array."""
        array, (low, high) = best.arrays[name], self._range(name, best)
        for value in (0.0, 1.0) if self.variables[name].kind in DISCRETE else _SIMPLE:
            if low <= value <= high:
                yield torch.full_like(array, value)
        if array.is_floating_point():
            # Adding 0.0 turns -0.0 into 0.0, which is simpler to read.
            yield array.round().clamp(low, high) + 0.0

    def _simplify_elements(self, best: Example) -> Example:
        """Return the example with single elements replaced by simpler numbers, as long as it still fails."""
        for name in best.arrays:
            if self.variables[name].kind in DISTRIBUTIONS:
                continue
            for index in range(best.arrays[name].numel()):
                best = self._simplify_element(best, name, index)
        return best

    def _simplify_element(self, best: Example, name: str, index: int) -> Example:
        """Return the example with one element replaced by a simpler number, if it still fails."""
        low, high = self._range(name, best)
        flat = best.arrays[name].flatten()
        for value in sorted(_simpler_numbers(float(flat[index]), self.variables[name].kind), key=_complexity):
            if low <= value <= high:
                changed = flat.clone()
                changed[index] = value
                array = changed.reshape(best.arrays[name].shape)
                candidate = self._round_to_dtypes(replace(best, arrays={**best.arrays, name: array}))
                if self._accepts(candidate, best):
                    return candidate
        return best

    def _range(self, name: str, example: Example) -> tuple[float, float]:
        """Return the bounds of the numbers of a variable; the extra value of an index is outside of these bounds."""
        variable = self.variables[name]
        if variable.kind is Kind.MASK:
            return 0.0, 1.0
        if variable.kind is Kind.INDEX:
            return 0.0, float(example.sizes[variable.of or ""] - 1)
        return bounds(variable, example.sizes, example.arrays)


def _slice_choices(size: int, smallest: int) -> Iterator[list[int]]:
    """Yield the indices of the slices to keep along an axis: as few slices as allowed, then all slices but one."""
    if size > smallest:
        yield from ([*range(start, start + smallest)] for start in range(size - smallest + 1))
    if size > smallest + 1:
        yield from ([i for i in range(size) if i != left_out] for left_out in range(size))


def _renumber(array: Tensor, indices: list[int]) -> Tensor:
    """Convert indices of an axis to the axis that keeps only the slices `indices`.

    An index of a removed slice becomes 0. A negative index is the extra value of the variable, which stays.
    """
    new = {old: index for index, old in enumerate(indices)}
    return torch.tensor([new.get(i, 0) if i >= 0 else i for i in array.flatten().tolist()]).reshape(array.shape)


def _simpler_numbers(value: float, kind: Kind) -> set[float]:
    """Return numbers that are simpler than a value, as candidates to replace it."""
    if kind in (Kind.INDEX, Kind.MASK):
        return {float(v) for v in (0, 1) if _complexity(v) < _complexity(value)}
    # The nearest whole number, half of it, two significant digits (as float32), and one step nearer to zero.
    rounded = {float(round(value)), float(round(value / 2)), float(torch.tensor(float(f"{value:.1e}")))}
    smaller = {value - math.copysign(1, value)} if abs(value) > 2 and value == round(value) else set()
    candidates = {*_SIMPLE, *(-v for v in _SIMPLE if v), *rounded, *smaller}
    if kind is Kind.INT:
        candidates = {v for v in candidates if v == int(v)}
    return {v for v in candidates if _complexity(v) < _complexity(value)}


def _complexity(value: float) -> float:
    """Return how hard a number is to read: 0 is simplest, then small whole numbers, then fractions with few digits."""
    if value == 0:
        return 0.0
    fraction = value != round(value)
    return 1 + abs(value) + (20 + 2 * len(repr(value))) * fraction + 0.5 * (value < 0)


def _cost(example: Example) -> tuple[int, float]:
    """Return the cost of an example: the number of elements, then the complexity of all values and sizes."""
    elements = sum(array.numel() for array in example.arrays.values())
    values = sum(_complexity(float(v)) for array in example.arrays.values() for v in array.flatten().tolist())
    # The sizes count too, since a size may be the size of no array.
    return elements, values + sum(example.sizes.values())


def _key(example: Example) -> tuple[object, ...]:
    """Return a hashable key of the sizes and values of an example."""
    arrays = ((name, tuple(array.shape), *array.flatten().tolist()) for name, array in example.arrays.items())
    return *example.sizes.items(), *arrays
