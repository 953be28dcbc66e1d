"""The algebra of float64 tensors: exact, or in several runs at once in which every operation has a rounding error.

Every content has the shape [runs, *axes]; the dimension `runs` has size 1 if the content is the same in all runs. The
gradient of a masked branch is zero, even if the slope of a logarithm, root, power, product or quotient is infinite.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pv.equations.arrays import Tensor, torch
from pv.equations.interpret import Axes, Value

F64 = torch.float64


class _Context(Protocol):
    """The object in which autograd stores data between the forward and the backward pass of a function."""

    saved_tensors: tuple[Tensor, ...]
    slope: Callable[[Tensor, Tensor], Tensor]
    """Returns the derivative of the function at the argument x with the result y."""

    def save_for_backward(self, *tensors: Tensor) -> None: ...


# Autograd multiplies the incoming gradient by the slope. In `where(x > 0, log(x), 0)` at x = 0, the branch log(x) is
# masked: its incoming gradient is 0 and its slope is infinite, and 0 * inf is NaN. The gradient of these classes is 0.
class _Smooth(torch.autograd.Function):
    """An elementwise function whose gradient is zero where the incoming gradient is zero."""

    @staticmethod
    def forward(
        ctx: _Context, x: Tensor, function: Callable[[Tensor], Tensor], slope: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        y = function(x)
        ctx.save_for_backward(x, y)
        ctx.slope = slope
        return y

    @staticmethod
    def backward(ctx: _Context, gradient: Tensor) -> tuple[Tensor, None, None]:
        x, y = ctx.saved_tensors
        return torch.where(gradient == 0, 0.0, gradient * ctx.slope(x, y)), None, None


class _Product(torch.autograd.Function):
    """The product a * b, whose gradients are zero where the incoming gradient is zero."""

    @staticmethod
    def forward(ctx: _Context, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx: _Context, gradient: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        # The slope is the other factor, which may be infinite in a masked branch.
        masked = gradient == 0
        to_a, to_b = torch.where(masked, 0.0, gradient * b), torch.where(masked, 0.0, gradient * a)
        return to_a.sum_to_size(a.shape), to_b.sum_to_size(b.shape)  # the inverse of broadcasting


class _Power(torch.autograd.Function):
    """The power a ** b, whose gradients are zero where the incoming gradient is zero."""

    @staticmethod
    def forward(ctx: _Context, a: Tensor, b: Tensor) -> Tensor:
        y = torch.pow(a, b)
        ctx.save_for_backward(a, b, y)
        return y

    @staticmethod
    def backward(ctx: _Context, gradient: Tensor) -> tuple[Tensor, Tensor]:
        a, b, y = ctx.saved_tensors
        # As in torch.pow, the slope is 0 at an exponent of 0, or a base of 0, where the formula gives 0 * inf = NaN.
        to_a = torch.where((gradient == 0) | (b == 0), 0.0, gradient * b * torch.pow(a, b - 1))
        to_b = torch.where((gradient == 0) | ((a == 0) & (b >= 0)), 0.0, gradient * y * a.log())
        return to_a.sum_to_size(a.shape), to_b.sum_to_size(b.shape)


def _apply(function: type[torch.autograd.Function], *arguments: object) -> Tensor:
    """Call a function of autograd. `apply` has no type annotations."""
    result: Tensor = function.apply(*arguments)
    return result


def _broadcast_shapes(*shapes: torch.Size) -> torch.Size:
    """Return the shape to which some shapes are broadcast."""
    # `torch.broadcast_shapes` imports SymPy at its first call, which takes most of a second.
    broadcast: Tensor = torch.broadcast_tensors(*(torch.empty(()).expand(shape) for shape in shapes))[0]
    return broadcast.shape


def _smooth(
    function: Callable[[Tensor], Tensor], slope: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    """Return an elementwise function as a `_Smooth`; `slope(x, y)` is the derivative at x with the result y."""
    return lambda x: _apply(_Smooth, x, function, slope)


exp = _smooth(torch.exp, lambda x, y: y)
log = _smooth(torch.log, lambda x, y: 1 / x)
_reciprocal = _smooth(torch.reciprocal, lambda x, y: -y * y)


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    return _apply(_Product, a, b)


def _power(a: Tensor, b: Tensor) -> Tensor:
    return _apply(_Power, a, b)


def _divide(a: Tensor, b: Tensor) -> Tensor:
    # If a gradient is needed, multiply by the reciprocal, so that `_Product` computes the gradient. Otherwise use the
    # quotient, which has one rounding instead of two.
    return _multiply(a, _reciprocal(b)) if a.requires_grad or b.requires_grad else a / b


# Functions whose results are perturbed by a rounding error, and functions whose results are not.
ROUNDED: Mapping[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": _multiply,
    "divide": _divide,
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "power": _power,
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


def reduce_content(name: str, content: Tensor, dims: list[int], where: Tensor | None) -> Tensor:
    """Return a content reduced over some dimensions, without perturbation.

    Args:
        name: The name of the reduction, such as `sum`.
        content: The content [runs, *axes].
        dims: The dimensions that are removed.
        where: A mask of the elements to include, with the shape of the content; None for all elements.
    """

    # Excluded elements become the neutral element of the reduction, so that shapes stay the same.
    def fill(neutral: float) -> Tensor:
        return content if where is None else torch.where(where, content, torch.tensor(neutral, dtype=content.dtype))

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
            # Tensor.prod takes one dimension only, so flatten the dimensions into one.
            moved = fill(1.0).movedim(dims, list(range(-len(dims), 0)))
            return moved.flatten(-len(dims)).prod(-1)
        case "count":
            return fill(False).sum(dims).to(F64)
        case "any":
            return fill(False).any(dims)
        case _:
            return fill(True).all(dims)


EXACT_BELOW = 2**20
"""Whole literals whose absolute value is below this number have no rounding error."""
_EXACT_REDUCTIONS = frozenset({"max", "min", "count", "any", "all"})


class Tensors:
    """The algebra of float64 tensors on the CPU; `pv.equations.interpret.Algebra` describes the methods.

    Args:
        sizes: The size of each axis.
        unit: The relative error of every operation; 0 for exact evaluation.
        runs: The number of runs; 1 for exact evaluation.
    """

    def __init__(self, sizes: Mapping[str, int], *, unit: float, runs: int) -> None:
        self._sizes, self._unit, self._runs = sizes, unit, runs
        self._random, self._generator = random.Random(0), torch.Generator().manual_seed(0)

    def _perturb(self, content: Tensor) -> Tensor:
        """Return a content in which every element has a rounding error, with a random sign in each run."""
        if not self._unit:
            return content
        # The standard model of rounding (Higham, Accuracy and Stability of Numerical Algorithms, section 2.2):
        # fl(x op y) = (x op y)(1 + d) with |d| <= unit. Use the extreme values of d with random signs: several runs
        # then show how errors add up.
        return content * (1 + self._unit * self._signs(tuple(content.shape[1:])))

    def _signs(self, shape: tuple[int, ...]) -> Tensor:
        """Draw signs of the shape [runs, *shape]."""
        # Draw signs of single numbers with Python's generator, which gives the same signs if PyTorch is not installed.
        if not shape:
            bits = self._random.getrandbits(self._runs)
            return torch.tensor([1.0 if bits >> run & 1 else -1.0 for run in range(self._runs)], dtype=F64)
        return torch.randint(0, 2, (self._runs, *shape), generator=self._generator, dtype=F64) * 2 - 1

    def constant(self, number: float) -> Tensor:
        content = torch.full((1,), number, dtype=F64)
        # Code rounds literals such as 0.1 too, but not whole numbers.
        whole = math.isinf(number) or (number == int(number) and abs(number) < EXACT_BELOW)
        return content if whole else self._perturb(content)

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
        return self._perturb(ROUNDED[name](*contents))

    def exact(self, name: str, contents: Sequence[Tensor]) -> Tensor:
        return EXACT[name](*contents)

    def reduce(self, name: str, content: Tensor, places: Sequence[int], where: Tensor | None) -> Tensor:
        dims = [1 + place for place in places]
        if where is not None:
            shape = _broadcast_shapes(content.shape, where.shape)
            content, where = content.expand(shape), where.expand(shape)
        if name in _EXACT_REDUCTIONS:
            return reduce_content(name, content, dims, where)
        # Perturb every term of a sum, not only the total.
        return self._perturb(reduce_content(name, self._perturb(content), dims, where))

    def along(self, name: str, content: Tensor, place: int) -> Tensor:
        dim = 1 + place
        if name == "cumsum":
            return self._perturb(self._perturb(content).cumsum(dim))
        if name == "cumprod":
            return self._perturb(self._perturb(content).cumprod(dim))
        log_softmax = self._log_softmax(content, dim)
        return log_softmax if name == "log_softmax" else self._perturb(exp(log_softmax))

    def _log_softmax(self, content: Tensor, dim: int) -> Tensor:
        """Return the log-softmax of a content, with a rounding error in every step."""
        # PyTorch computes x - max - log(sum(exp(x - max))). Perturb each step, since the logarithm of a sum near 1
        # magnifies the rounding error of the sum.
        shifted = self._perturb(content - content.detach().amax(dim, keepdim=True))
        total = self._perturb(self._perturb(exp(shifted)).sum(dim, keepdim=True))
        return self._perturb(shifted - self._perturb(log(total)))

    def select(self, content: Tensor, place: int, index: int) -> Tensor:
        if not -content.shape[1 + place] <= index < content.shape[1 + place]:
            return torch.full((1,), math.nan, dtype=F64)
        return content.select(1 + place, index)

    def pick(self, content: Tensor, index: Tensor) -> Tensor:
        size = content.shape[-1]
        shape = _broadcast_shapes(content.shape[:-1], index.shape)
        inside = (index >= 0) & (index < size)
        # `gather` needs valid indices, so clamp them. An invalid index, such as -100, selects NaN from numbers.
        chosen = content.expand(*shape, size).gather(-1, index.clamp(0, size - 1).expand(shape).unsqueeze(-1))
        picked: Tensor = chosen.squeeze(-1)
        return torch.where(inside, picked, math.nan) if picked.is_floating_point() else picked

    def one_hot(self, index: Tensor, axis: str) -> Tensor:
        return (index.unsqueeze(-1) == torch.arange(self._sizes[axis])).to(F64)

    def argmax(self, content: Tensor, place: int) -> Tensor:
        return content.argmax(1 + place)

    def top(self, content: Tensor, place: int, axis: str) -> Tensor:
        return content.movedim(1 + place, -1).topk(self._sizes[axis], -1).indices
