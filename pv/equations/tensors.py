"""The algebra of float64 tensors: exact, or in several runs at once with every operation off by one rounding.

Every content is [runs, *axes]; runs is 1 where all runs agree.
"""

import math
import random
from collections.abc import Mapping, Sequence

from pv.equations.arrays import Tensor, torch
from pv.equations.tensor_functions import EXACT, F64, ROUNDED, broadcast, exp, log, reduced
from pv.equations.values import Axes, Value

EXACT_BELOW = 2**20  # whole numbers below this are the same in every dtype that is claimed
_EXACT_REDUCTIONS = frozenset({"max", "min", "count", "any", "all"})


class Tensors:
    """The algebra of float64 tensors on the CPU. unit: the relative error of every operation; 0 is exact."""

    def __init__(self, sizes: Mapping[str, int], *, unit: float, runs: int) -> None:
        self._sizes, self._unit, self._runs = sizes, unit, runs
        self._random, self._generator = random.Random(0), torch.Generator().manual_seed(0)

    def _disturbed(self, content: Tensor) -> Tensor:
        if not self._unit:
            return content
        return content * (1 + self._unit * self._signs(tuple(content.shape[1:])))

    def _signs(self, shape: tuple[int, ...]) -> Tensor:
        if not shape:  # by Python's generator: the same without PyTorch
            bits = self._random.getrandbits(self._runs)
            return torch.tensor([1.0 if bits >> run & 1 else -1.0 for run in range(self._runs)], dtype=F64)
        return torch.randint(0, 2, (self._runs, *shape), generator=self._generator, dtype=F64) * 2 - 1

    def constant(self, number: float) -> Tensor:
        content = torch.full((1,), number, dtype=F64)
        whole = math.isinf(number) or (number == int(number) and abs(number) < EXACT_BELOW)
        return content if whole else self._disturbed(content)

    def size(self, axis: str) -> Tensor:
        return torch.full((1,), float(self._sizes[axis]), dtype=F64)

    def align(self, value: Value[Tensor], axes: Axes) -> Tensor:
        present = [axis for axis in axes if axis in value.axes]
        content = value.content.permute(0, *(1 + value.axes.index(axis) for axis in present))
        for place, axis in enumerate(axes):
            if axis not in value.axes:
                content = content.unsqueeze(1 + place)
        return content

    def number(self, content: Tensor) -> Tensor:
        return content if content.dtype == F64 else content.to(F64)

    def elementwise(self, name: str, contents: Sequence[Tensor]) -> Tensor:
        return self._disturbed(ROUNDED[name](*contents))

    def exact(self, name: str, contents: Sequence[Tensor]) -> Tensor:
        return EXACT[name](*contents)

    def reduce(self, name: str, content: Tensor, places: Sequence[int], where: Tensor | None) -> Tensor:
        dims = [1 + place for place in places]
        if where is not None:
            shape = broadcast(content.shape, where.shape)
            content, where = content.expand(shape), where.expand(shape)
        if name in _EXACT_REDUCTIONS:
            return reduced(name, content, dims, where)
        # Every term of a sum is rounded, not only the total.
        return self._disturbed(reduced(name, self._disturbed(content), dims, where))

    def along(self, name: str, content: Tensor, place: int) -> Tensor:
        dim = 1 + place
        if name == "cumsum":
            return self._disturbed(self._disturbed(content).cumsum(dim))
        if name == "cumprod":
            return self._disturbed(self._disturbed(content).cumprod(dim))
        log_softmax = self._log_softmax(content, dim)
        return log_softmax if name == "log_softmax" else self._disturbed(exp(log_softmax))

    def _log_softmax(self, content: Tensor, dim: int) -> Tensor:
        """Round every step inside: the logarithm of a sum near 1 magnifies the rounding of the sum."""
        top = content.detach().amax(dim, keepdim=True)
        shifted = self._disturbed(content - torch.where(top.isinf(), 0.0, top))
        total = self._disturbed(self._disturbed(exp(shifted)).sum(dim, keepdim=True))
        return self._disturbed(shifted - self._disturbed(log(total)))

    def select(self, content: Tensor, place: int, index: int) -> Tensor:
        if not -content.shape[1 + place] <= index < content.shape[1 + place]:
            return torch.full((1,), math.nan, dtype=F64)
        return content.select(1 + place, index)

    def pick(self, content: Tensor, index: Tensor) -> Tensor:
        size = content.shape[-1]
        shape = broadcast(content.shape[:-1], index.shape)
        inside = (index >= 0) & (index < size)
        chosen = content.expand(*shape, size).gather(-1, index.clamp(0, size - 1).expand(shape).unsqueeze(-1))
        picked: Tensor = chosen.squeeze(-1)
        return torch.where(inside, picked, math.nan) if picked.is_floating_point() else picked

    def one_hot(self, index: Tensor, axis: str) -> Tensor:
        return (index.unsqueeze(-1) == torch.arange(self._sizes[axis])).to(F64)

    def argmax(self, content: Tensor, place: int) -> Tensor:
        return content.argmax(1 + place)

    def top(self, content: Tensor, place: int, axis: str) -> Tensor:
        return content.movedim(1 + place, -1).topk(self._sizes[axis], -1).indices
