"""Random examples of a domain: sizes first, then the variables in order, each in one of several styles.

Every number is representable in the dtype of the code's arrays, so code and equation start from the same value.
"""

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pv.equations.arrays import Tensor, torch
from pv.equations.domain import DISTRIBUTIONS, Kind, Variable, axis_bounds
from pv.equations.tensor_functions import F64

SMALLEST_SIZE = 0.1  # probability that an axis has its smallest size
EXTRA_INDEX = 0.7  # probability that an index has its extra value somewhere, if it has one
ZERO_MASS = 0.2  # probability that a distribution has outcomes without mass


@dataclass(frozen=True, slots=True)
class Example:
    """One input: float64, int64 or bool arrays by name, the size of each axis, and the dtype that the code gets."""

    arrays: Mapping[str, Tensor]
    sizes: Mapping[str, int]
    dtype: str = "float32"


class Drawer:
    """Draws examples of a domain, reproducibly from a seed. The dtypes take turns."""

    def __init__(self, variables: Mapping[str, Variable], seed: int, dtypes: Sequence[str] = ("float32",)) -> None:
        self._variables, self._bounds = variables, axis_bounds(variables)
        self._random = random.Random(seed)
        self._generator = torch.Generator().manual_seed(seed)
        self._dtypes = itertools.cycle(dtypes)

    def example(self) -> Example:
        """Return the next example. It need not satisfy `requires`."""
        dtype = next(self._dtypes)
        sizes = {axis: self._size(low, high) for axis, (low, high) in self._bounds.items()}
        arrays: dict[str, Tensor] = {}
        for name, variable in self._variables.items():
            if variable.kind is not Kind.SIZE:
                arrays[name] = self._array(variable, sizes, arrays)
                arrays[name] = fitted(variable, arrays[name], bounds(variable, sizes, arrays), dtype)
        return Example(arrays, sizes, dtype)

    def _size(self, low: int, high: int) -> int:
        return low if self._random.random() < SMALLEST_SIZE else self._random.randint(low, high)

    def _array(self, variable: Variable, sizes: Mapping[str, int], earlier: Mapping[str, Tensor]) -> Tensor:
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
        return self._styled(low, high, shape, earlier)

    def _index(self, variable: Variable, shape: tuple[int, ...], sizes: Mapping[str, int]) -> Tensor:
        drawn = self._whole(0, sizes[variable.of or ""] - 1, shape)
        if variable.extra is not None and self._random.random() < EXTRA_INDEX:
            extra = self._uniform(shape) < self._random.choice([0.2, 0.5])
            drawn = torch.where(extra, variable.extra, drawn)
        return drawn

    def _distribution(self, kind: Kind, shape: tuple[int, ...]) -> Tensor:
        logs = (self._normal(shape) * self._random.choice([0, 1, 5, 20])).log_softmax(-1)
        if kind is Kind.LOGPROB:
            return logs
        if self._random.random() < ZERO_MASS:
            without_mass = (self._uniform(shape) < 0.5) & (logs < logs.amax(-1, keepdim=True))
            logs = logs.masked_fill(without_mass, -math.inf).log_softmax(-1)
        return logs.exp()

    def _integers(self, low: float, high: float, shape: tuple[int, ...]) -> Tensor:
        first, last = math.ceil(low), math.floor(high)
        if self._random.random() < 0.2:
            return torch.full(shape, float(self._random.choice([first, last])), dtype=F64)
        return self._whole(first, last, shape).to(F64)

    def _scalar(self, low: float, high: float) -> float:
        chance = self._random.random()
        if chance < 0.12:
            return low if chance < 0.06 else high
        if chance < 0.16:
            return min(max(1.0, low), high)
        if chance < 0.6 or low <= 0:
            return self._random.uniform(low, high)
        return math.exp(self._random.uniform(math.log(low), math.log(high)))

    def _styled(self, low: float, high: float, shape: tuple[int, ...], earlier: Mapping[str, Tensor]) -> Tensor:
        """Return ties, peaks, ends of the range, or values (nearly) equal to an earlier array: they expose faults."""
        alike = [array for array in earlier.values() if array.shape == shape and array.dtype == F64]
        style = self._random.choice(["flat", "ties", "wide", "peaked", "alike", "shifted", "normal", "normal"])
        reach = min(max(abs(low), abs(high)), 1e6)
        match style:
            case "flat":
                return torch.full(shape, self._random.gauss(0, 3), dtype=F64)
            case "ties":
                return torch.randint(-2, 3, shape, generator=self._generator).to(F64)
            case "wide":
                return self._normal(shape) * reach
            case "peaked":
                drawn = self._normal(shape) * 0.1
                drawn[..., self._random.randrange(shape[-1])] = reach
                return drawn
            case "alike" if alike:
                near = self._normal(shape) * 0.01 if self._random.random() < 0.5 else 0.0
                return self._random.choice(alike) + near
            case "shifted":
                return self._normal(shape) * 10 + self._random.gauss(0, 1) * reach / 2
            case _:
                return self._normal(shape) * self._random.choice([1.0, 5.0])

    def _whole(self, first: int, last: int, shape: tuple[int, ...]) -> Tensor:
        if not shape:  # by Python's generator: the same without PyTorch
            return torch.tensor(self._random.randint(first, last))
        return torch.randint(first, last + 1, shape, generator=self._generator)

    def _uniform(self, shape: tuple[int, ...]) -> Tensor:
        if not shape:
            return torch.tensor(self._random.random(), dtype=F64)
        return torch.rand(shape, generator=self._generator, dtype=F64)

    def _normal(self, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=self._generator, dtype=F64)


def bounds(variable: Variable, sizes: Mapping[str, int], scalars: Mapping[str, Tensor]) -> tuple[float, float]:
    """Return the bounds of a variable for the sizes and scalars of one example."""

    def number(bound: float | str) -> float:
        if isinstance(bound, float):
            return bound
        return float(sizes[bound]) if bound in sizes else float(scalars[bound])

    low, high = number(variable.low), number(variable.high)
    return low, max(low, high)


def fitted(variable: Variable, array: Tensor, within: tuple[float, float], dtype: str) -> Tensor:
    """Return the numbers of a dtype that are nearest to those of `array` and within the bounds `within`.

    Scalars become float32. Where no number of the dtype is within bounds, the nearest one outside is used.
    """
    if not array.is_floating_point():
        return array
    torch_dtype = getattr(torch, dtype if variable.axes else "float32")
    if variable.kind in DISTRIBUTIONS:
        return array.to(torch_dtype).double()
    low, high = (_inside(bound, towards, torch_dtype) for bound, towards in zip(within, reversed(within), strict=True))
    return array.to(torch_dtype).double().clamp(low, max(low, high))


def _inside(bound: float, towards: float, dtype: torch.dtype) -> float:
    """Return the number of a dtype that is nearest to a bound, on the side of `towards`, the other bound."""
    rounded = torch.tensor(bound, dtype=F64).to(dtype)
    beyond = rounded.double() < bound if towards > bound else rounded.double() > bound
    return float((torch.nextafter(rounded, torch.tensor(towards, dtype=dtype)) if beyond else rounded).double())
