"""The functions of the algebra of tensors. The gradients of a masked branch are zero, even at an infinite slope."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from pv.equations.arrays import Tensor, torch

F64 = torch.float64


class _Smooth(torch.autograd.Function):
    """An elementwise function. A zero gradient stays zero where the slope is infinite."""

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
    """a * b. A zero gradient stays zero where the other factor is infinite."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        a, b = ctx.saved_tensors
        masked = gradient == 0
        to_a = torch.where(masked, 0.0, gradient * b).sum_to_size(a.shape)
        return to_a, torch.where(masked, 0.0, gradient * a).sum_to_size(b.shape)


def _apply(function: Any, *arguments: Any) -> Tensor:
    result: Tensor = function.apply(*arguments)
    return result


def broadcast(*shapes: torch.Size) -> torch.Size:
    torch_: Any = torch  # its stubs do not type this function
    shape: torch.Size = torch_.broadcast_shapes(*shapes)
    return shape


def _smooth(
    function: Callable[[Tensor], Tensor], slope: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    return lambda x: _apply(_Smooth, x, function, slope)


exp = _smooth(torch.exp, lambda x, y: y)
log = _smooth(torch.log, lambda x, y: 1 / x)
_reciprocal = _smooth(torch.reciprocal, lambda x, y: -y * y)


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    return _apply(_Product, a, b)


def _divide(a: Tensor, b: Tensor) -> Tensor:
    # The quotient is correctly rounded; only a gradient needs the product.
    return _multiply(a, _reciprocal(b)) if a.requires_grad or b.requires_grad else a / b


ROUNDED: Mapping[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": _multiply,
    "divide": _divide,
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "power": torch.pow,
    "exp": exp,
    "log": log,
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
EXACT: Mapping[str, Callable[..., Tensor]] = {
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


def reduced(name: str, content: Tensor, dims: list[int], where: Tensor | None) -> Tensor:
    """Return a content reduced over `dims`, and over the elements where `where` holds."""

    def fill(other: float) -> Tensor:
        return content if where is None else torch.where(where, content, torch.tensor(other, dtype=content.dtype))

    match name:
        case "sum":
            return fill(0.0).sum(dims)
        case "mean":
            count = math.prod(content.shape[dim] for dim in dims) if where is None else where.sum(dims)
            return fill(0.0).sum(dims) / count
        case "max" | "min":
            return fill(-math.inf).amax(dims) if name == "max" else fill(math.inf).amin(dims)
        case "norm":
            return ROUNDED["sqrt"](fill(0.0).square().sum(dims))
        case "logsumexp":
            return torch.logsumexp(fill(-math.inf), dims)
        case "prod":
            moved = fill(1.0).movedim(dims, list(range(-len(dims), 0)))
            return moved.flatten(-len(dims)).prod(-1)
        case "count":
            return fill(False).sum(dims).to(F64)
        case "any":
            return fill(False).any(dims)
        case _:
            return fill(True).all(dims)
