"""The part of PyTorch's interface that equations without axes need, implemented with Python's numbers.

A tensor here has the shape (), or (runs,) for several runs of one evaluation. `as_tensor` also accepts results of code
with other shapes, so that their shape can be reported. Equations with automatic differentiation, arrays or memory
layouts need PyTorch: `needs_torch` returns the part that does.

Why not NumPy: NumPy would add 60 MB to an installation without PyTorch, and to every worker an import that takes twice
as long as the import of this package. NumPy would replace `floats` and the broadcasting here, but most of this module
would remain: `tensors` uses the names of PyTorch (`dim`, `amax`, `permute`), and NumPy infers dtypes differently.
"""

import ast
import math
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from pv.equations import floats
from pv.equations.language import Formula
from pv.equations.parse import Check, Definition

inf = math.inf


# Classes and functions have the names of PyTorch, such as the lower-case `dtype`, so that callers need not know which
# library is used.
class dtype(NamedTuple):
    """The type of the numbers of a tensor.

    Attributes:
        name: The name of the dtype in PyTorch, without `torch.`.
        cast: Converts a Python number to a number of this type. Half precision is stored unrounded.
    """

    name: str
    cast: Callable[[Any], object]
    is_floating_point: bool = True

    def __str__(self) -> str:
        return self.name


float64, float32 = dtype("float64", float), dtype("float32", floats.float32)
float16, bfloat16 = dtype("float16", float), dtype("bfloat16", float)
int64, _complex, _bool = dtype("int64", int, False), dtype("complex128", complex, False), dtype("bool", bool, False)


def _map_numbers(function: Callable[..., object], *operands: object, to: dtype = float64) -> "Tensor":
    """Apply a function of Python numbers to operands elementwise, and return a tensor of the dtype `to`."""
    # The shapes are (), (1,) or (runs,): a single number is repeated for every run. The result has the largest shape.
    tensors = [operand if isinstance(operand, Tensor) else Tensor([operand], ()) for operand in operands]
    shape = max((tensor.shape for tensor in tensors), key=lambda shape: (len(shape), shape))
    size = math.prod(shape)
    columns = (tensor.numbers if len(tensor.numbers) == size else tensor.numbers * size for tensor in tensors)
    return Tensor([*map(function, *columns)], shape, to)


def _lift(function: Callable[..., object], to: dtype = float64) -> Callable[..., "Tensor"]:
    """Return a function of tensors that applies `function` to the numbers. As a class attribute, it is a method."""
    return lambda *operands: _map_numbers(function, *operands, to=to)


class Tensor:
    """A list of numbers with a shape and a dtype; the methods have the names and the meaning of PyTorch's."""

    requires_grad = False

    def __init__(self, numbers: list[Any], shape: tuple[int, ...], of: dtype = float64) -> None:
        self.numbers, self.shape, self.dtype = numbers, shape, of

    # These methods and the functions below this class are built from the same functions of floats.
    __add__ = __radd__ = _lift(operator.add)
    __mul__ = __rmul__ = _lift(operator.mul)
    __sub__, __truediv__ = _lift(operator.sub), _lift(floats.divide)
    __lt__, __le__ = _lift(operator.lt, _bool), _lift(operator.le, _bool)
    __gt__, __ge__ = _lift(operator.gt, _bool), _lift(operator.ge, _bool)
    __and__, __or__ = _lift(operator.and_, _bool), _lift(operator.or_, _bool)
    __eq__: Any = _lift(operator.eq, _bool)
    __ne__: Any = _lift(operator.ne, _bool)
    abs, sign, round = _lift(math.fabs), _lift(floats.sign), _lift(floats.round_half_even)
    isnan, isinf, isfinite = _lift(math.isnan, _bool), _lift(math.isinf, _bool), _lift(math.isfinite, _bool)

    # Because of the `*`, a tensor with several numbers raises TypeError in these conversions.
    def __float__(self) -> float:
        return float(*self.numbers)

    def __int__(self) -> int:
        return int(*self.numbers)

    __index__ = __int__

    def __bool__(self) -> bool:
        return bool(*self.numbers)

    def __getitem__(self, index: int) -> "Tensor":
        return Tensor([self.numbers[index]], (), self.dtype)

    def __setitem__(self, index: int, number: float) -> None:
        self.numbers[index] = self.dtype.cast(number)

    def clamp(self, low: float, high: float) -> "Tensor":
        return minimum(maximum(self, low), high)

    def clamp_min(self, low: float) -> "Tensor":
        return maximum(self, low)

    def nan_to_num(self, nan: float = 0.0, posinf: float = sys.float_info.max) -> "Tensor":
        # As in PyTorch, -inf becomes the smallest finite number, whatever `posinf` is.
        changed = {math.inf: posinf, -math.inf: -sys.float_info.max}
        return _map_numbers(lambda x: nan if math.isnan(x) else changed.get(x, x), self)

    def all(self) -> "Tensor":
        return Tensor([all(self.numbers)], (), _bool)

    def any(self) -> "Tensor":
        return Tensor([any(self.numbers)], (), _bool)

    def amax(self, _: int = 0) -> "Tensor":
        return Tensor([math.nan if any(map(math.isnan, self.numbers)) else max(self.numbers)], ())

    def argmax(self) -> "Tensor":
        return Tensor([self.numbers.index(max(self.numbers))], (), int64)

    def numel(self) -> int:
        return len(self.numbers)

    def dim(self) -> int:
        return len(self.shape)

    def tolist(self) -> object:
        return self.numbers if self.shape else self.numbers[0]

    def clone(self) -> "Tensor":
        return Tensor([*self.numbers], self.shape, self.dtype)

    def reshape(self, shape: tuple[int, ...]) -> "Tensor":
        return Tensor(self.numbers, shape, self.dtype)

    def flatten(self) -> "Tensor":
        return self.reshape((len(self.numbers),))

    def unsqueeze(self, _: int) -> "Tensor":
        return self.flatten()

    def detach(self, *_: int) -> "Tensor":
        return self

    cpu = expand = permute = detach  # nothing to do: there are no axes, and there is no other device

    def to(self, of: dtype) -> "Tensor":
        return Tensor([*map(of.cast, self.numbers)], self.shape, of)

    def double(self) -> "Tensor":
        return self.to(float64)

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        return self.dtype is _complex


def where(condition: Tensor, yes: object, no: object) -> Tensor:
    return _map_numbers(lambda holds, a, b: a if holds else b, condition, yes, no, to=getattr(no, "dtype", float64))


def finfo(_: dtype) -> SimpleNamespace:
    return SimpleNamespace(max=sys.float_info.max, tiny=sys.float_info.min)


def full(shape: tuple[int, ...], number: float, dtype: dtype = float64) -> Tensor:
    return Tensor([dtype.cast(number)] * math.prod(shape), shape, dtype)


def full_like(tensor: Tensor, number: float) -> Tensor:
    return full(tensor.shape, number, tensor.dtype)


def zeros(shape: tuple[int, ...], dtype: dtype = float64) -> Tensor:
    return full(shape, 0.0, dtype)


def zeros_like(tensor: Tensor) -> Tensor:
    return full_like(tensor, 0.0)


def as_tensor(value: object, dtype: dtype | None = None) -> Tensor:
    """Convert a number, nested sequences or a NumPy array to a tensor. Raise TypeError or ValueError if this fails."""
    numbers, shape = _flat(value)
    return Tensor(numbers, shape).to(dtype or _inferred_dtype(numbers))


tensor = as_tensor


def _flat(value: object) -> tuple[list[object], tuple[int, ...]]:
    """Return the numbers in a number, nested sequences or a NumPy array, and the shape."""
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        value = value.tolist()
    # A string is a sequence of strings: without this check the recursion would not end.
    if isinstance(value, str | bytes):
        raise TypeError(f"expected a number, got {value!r}")
    if not isinstance(value, Sequence):
        return [value], ()
    parts = [_flat(item) for item in value]
    if len({shape for _, shape in parts}) > 1:
        raise ValueError("the rows have different lengths")
    flat = [number for numbers, _ in parts for number in numbers]
    shape_of_item = parts[0][1] if parts else ()
    return flat, (len(parts), *shape_of_item)


def _inferred_dtype(numbers: list[Any]) -> dtype:
    """Return the dtype that PyTorch infers. Raise TypeError or ValueError for numbers that PyTorch does not accept."""
    if not all(isinstance(number, bool | int | float | complex) for number in numbers):
        raise TypeError("expected numbers")
    if any(isinstance(number, complex) for number in numbers):
        return _complex
    if not numbers or any(isinstance(number, float) for number in numbers):
        return float32
    # PyTorch raises for larger integers too.
    if any(not -(2**63) <= number < 2**63 for number in numbers):
        raise ValueError("expected 64-bit integers")
    return _bool if all(isinstance(number, bool) for number in numbers) else int64


add, sub, neg = Tensor.__add__, Tensor.__sub__, _lift(operator.neg)
floor_divide, remainder, pow = _lift(floats.floor_divide), _lift(floats.remainder), _lift(floats.power)
exp, log, log1p, expm1 = _lift(floats.exp), _lift(floats.log), _lift(floats.log1p), _lift(floats.expm1)
sqrt, sin, cos, tanh = _lift(floats.sqrt), _lift(floats.sin), _lift(floats.cos), _lift(math.tanh)
sigmoid, erf, relu, floor = _lift(floats.sigmoid), _lift(math.erf), _lift(floats.relu), _lift(floats.floor)
maximum, minimum = _lift(floats.maximum), _lift(floats.minimum)
abs, sign, reciprocal = Tensor.abs, Tensor.sign, _lift(partial(floats.divide, 1.0))
lt, le, gt, ge, eq, ne = (getattr(Tensor, f"__{name}__") for name in ("lt", "le", "gt", "ge", "eq", "ne"))
logical_and, logical_or, logical_not = Tensor.__and__, Tensor.__or__, _lift(operator.not_, _bool)
nextafter = _lift(floats.nextafter32, float32)


class Generator:
    """Placeholder for `torch.Generator`, which only draws arrays: without PyTorch, there are no arrays."""

    def manual_seed(self, _: int) -> "Generator":
        return self


class Function:
    """Placeholder for `torch.autograd.Function`: evaluates the function without a derivative."""

    forward: Callable[..., object]

    @classmethod
    def apply(cls, *arguments: object) -> object:
        return cls.forward(SimpleNamespace(save_for_backward=lambda *_: None), *arguments)


Size, autograd = tuple[int, ...], SimpleNamespace(Function=Function)


def needs_torch(equation: Definition, definitions: Mapping[str, Definition]) -> str:
    """Return a part of an equation that needs PyTorch, such as `the array x[N]`; "" if no part does.

    Args:
        equation: The equation.
        definitions: The equations that the equation may call, by name.
    """
    if equation.derivative is not None:
        return f"the derivative of {equation.derivative.equation}"
    # Check arrays before calls: an array is the usual reason, and gives the clearest message.
    for variable in equation.variables.values():
        if variable.axes:
            return f"the array {variable.name}[{','.join(variable.axes)}]"
    for formula in _formulas_with_called(equation, definitions):
        calls = [node for line in formula.lines for node in ast.walk(line.value) if isinstance(node, ast.Call)]
        for call in calls:
            if isinstance(call.func, ast.Name) and call.func.id == "one_hot":
                return f"the array {ast.unparse(call)}"
    for check in (Check.NONCONTIGUOUS_INPUTS, Check.EXPANDED_INPUTS):
        if check in equation.checks.names:
            return f"the check {check}"
    return ""


def _formulas_with_called(equation: Definition, definitions: Mapping[str, Definition]) -> Iterator[Formula]:
    """Yield the formulas of an equation, and the expressions of all equations that these formulas call."""
    # Depth-first search over the called equations. `seen` ends the search in cycles, which only the type check refuses.
    pending, seen = [*equation.formulas], {equation.name}
    while pending:
        formula = pending.pop()
        yield formula
        new = [name for name in formula.called if name in definitions and name not in seen]
        seen.update(new)
        pending += [definitions[name].formula for name in new]
