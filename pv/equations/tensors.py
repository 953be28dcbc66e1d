"""Values of equations as float64 tensors: exact, or in several runs at once with each operation off by one rounding.

Every content has a leading axis of runs, of length 1 where all runs agree.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pv.equations.values import Axes, Value

F64 = torch.float64
_Unary = Callable[[Tensor], Tensor]
EXACT_BELOW = 2**20  # a whole number up to here is the same in every dtype that is claimed
_EXACT_REDUCTIONS = ("max", "min", "count", "any", "all")


class _Smooth(torch.autograd.Function):
    """A function of one number whose derivative times a zero gradient is zero, however infinite it is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: Callable[[Tensor], Tensor], slope: Any) -> Tensor:
        y = function(x)
        ctx.save_for_backward(x, y)
        ctx.slope = slope
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, y = ctx.saved_tensors
        return torch.where(gradient == 0, 0.0, gradient * ctx.slope(x, y)), None, None


class _Product(torch.autograd.Function):
    """a * b, where a masked branch (gradient zero) sends nothing to an infinite factor."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        a, b = ctx.saved_tensors
        silent = gradient == 0
        to_a = torch.where(silent, 0.0, gradient * b).sum_to_size(a.shape)
        return to_a, torch.where(silent, 0.0, gradient * a).sum_to_size(b.shape)


def _apply(function: Any, *arguments: Any) -> Tensor:
    result: Tensor = function.apply(*arguments)
    return result


def _broadcast(*shapes: torch.Size) -> torch.Size:
    torch_: Any = torch  # its stubs leave this function untyped
    shape: torch.Size = torch_.broadcast_shapes(*shapes)
    return shape


def _smooth(
    function: Callable[[Tensor], Tensor], slope: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    return lambda x: _apply(_Smooth, x, function, slope)


_exp = _smooth(torch.exp, lambda x, y: y)
_log = _smooth(torch.log, lambda x, y: 1 / x)
_reciprocal = _smooth(torch.reciprocal, lambda x, y: -y * y)


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    return _apply(_Product, a, b)


def _divide(a: Tensor, b: Tensor) -> Tensor:
    # The quotient is correctly rounded; only a gradient needs the product form.
    return _multiply(a, _reciprocal(b)) if a.requires_grad or b.requires_grad else a / b


_FUNCTIONS: Mapping[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": _multiply,
    "divide": _divide,
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "power": torch.pow,
    "exp": _exp,
    "log": _log,
    "log1p": _smooth(torch.log1p, lambda x, y: 1 / (1 + x)),
    "expm1": _smooth(torch.expm1, lambda x, y: y + 1),
    "sqrt": _smooth(torch.sqrt, lambda x, y: 0.5 / y),
    "abs": torch.abs,
    "sin": torch.sin,
    "cos": torch.cos,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "relu": torch.relu,
    "floor": torch.floor,
    "sign": torch.sign,
    "isfinite": lambda x: x.isfinite().to(F64),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "clip": lambda x, low, high: torch.minimum(torch.maximum(x, low), high),
}
_EXACT: Mapping[str, Callable[..., Tensor]] = {
    "negative": torch.neg,
    "not": torch.logical_not,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "where": torch.where,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "eq": torch.eq,
    "ne": torch.ne,
}


class Tensors:
    """The algebra of float64 tensors on the CPU. `unit` > 0: results are off by that share, in `runs` runs."""

    def __init__(self, sizes: Mapping[str, int], *, unit: float = 0.0, runs: int = 1) -> None:
        self._sizes, self._unit, self._runs = sizes, unit, runs
        self._generator = torch.Generator().manual_seed(0)

    def _disturbed(self, content: Tensor) -> Tensor:
        if not self._unit:
            return content
        signs = torch.randint(0, 2, (self._runs, *content.shape[1:]), generator=self._generator, dtype=F64) * 2 - 1
        return content * (1 + self._unit * signs)

    def constant(self, number: float) -> Tensor:
        content = torch.full((1,), number, dtype=F64)
        whole = math.isinf(number) or (number == int(number) and abs(number) < EXACT_BELOW)
        return content if whole else self._disturbed(content)

    def size(self, axis: str) -> Tensor:
        return torch.full((1,), float(self._sizes[axis]), dtype=F64)

    def align(self, value: Value, axes: Axes) -> Tensor:
        present = [axis for axis in axes if axis in value.axes]
        content: Tensor = value.content.permute(0, *(1 + value.axes.index(axis) for axis in present))
        for place, axis in enumerate(axes):
            if axis not in value.axes:
                content = content.unsqueeze(1 + place)
        return content

    def number(self, content: Tensor) -> Tensor:
        return content if content.dtype == F64 else content.to(F64)

    def elementwise(self, name: str, contents: Sequence[Tensor]) -> Tensor:
        return self._disturbed(_FUNCTIONS[name](*contents))

    def exact(self, name: str, contents: Sequence[Tensor]) -> Tensor:
        return _EXACT[name](*contents)

    def reduce(self, name: str, content: Tensor, places: Sequence[int], where: Tensor | None) -> Tensor:
        dims = [1 + place for place in places]
        if where is not None:
            shape = _broadcast(content.shape, where.shape)
            content, where = content.expand(shape), where.expand(shape)
        if name in _EXACT_REDUCTIONS:
            return _reduced(name, content, dims, where)
        # The terms of a sum are rounded as they are added, not only their total.
        return self._disturbed(_reduced(name, self._disturbed(content), dims, where))

    def along(self, name: str, content: Tensor, place: int) -> Tensor:
        dim = 1 + place
        if name == "cumsum":
            return self._disturbed(self._disturbed(content).cumsum(dim))
        if name == "cumprod":
            return self._disturbed(self._disturbed(content).cumprod(dim))
        log_softmax = self._log_softmax(content, dim)
        return log_softmax if name == "log_softmax" else self._disturbed(_exp(log_softmax))

    def _log_softmax(self, content: Tensor, dim: int) -> Tensor:
        """Disturbed inside: the logarithm of a sum near 1 magnifies a rounding that one operation would hide."""
        top = content.detach().amax(dim, keepdim=True)
        shifted = self._disturbed(content - torch.where(top.isinf(), 0.0, top))
        total = self._disturbed(self._disturbed(_exp(shifted)).sum(dim, keepdim=True))
        return self._disturbed(shifted - self._disturbed(_log(total)))

    def select(self, content: Tensor, place: int, index: int) -> Tensor:
        if not -content.shape[1 + place] <= index < content.shape[1 + place]:
            return torch.full((1,), math.nan, dtype=F64)
        return content.select(1 + place, index)

    def pick(self, content: Tensor, index: Tensor) -> Tensor:
        size = content.shape[-1]
        shape = _broadcast(content.shape[:-1], index.shape)
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


def _reduced(name: str, content: Tensor, dims: list[int], where: Tensor | None) -> Tensor:
    def kept(other: float) -> Tensor:
        return content if where is None else torch.where(where, content, torch.tensor(other, dtype=content.dtype))

    match name:
        case "sum":
            return kept(0.0).sum(dims)
        case "mean":
            count = math.prod(content.shape[dim] for dim in dims) if where is None else where.sum(dims)
            return kept(0.0).sum(dims) / count
        case "max" | "min":
            return kept(-math.inf).amax(dims) if name == "max" else kept(math.inf).amin(dims)
        case "norm":
            return _FUNCTIONS["sqrt"](kept(0.0).square().sum(dims))
        case "logsumexp":
            return torch.logsumexp(kept(-math.inf), dims)
        case "prod":
            moved = kept(1.0).movedim(dims, list(range(-len(dims), 0)))
            return moved.flatten(-len(dims)).prod(-1)
        case "count":
            return kept(False).sum(dims).to(F64)
        case "any":
            return kept(False).any(dims)
        case _:
            return kept(True).all(dims)
