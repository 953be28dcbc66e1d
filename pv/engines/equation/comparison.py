"""Compare the code under contract with its equation on one example.

`Observer` calls the code and yields the values that must equal the equation: results and derivatives. `compare` raises
`Refuted` if a value differs by more than rounding. Further checks detect arguments that the code changes, results
that depend on the memory layout of an array, and tolerances too wide to refute any code.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from pv.equations.arrays import Tensor, torch
from pv.equations.call import evaluate_returns
from pv.equations.domain import DISTRIBUTIONS
from pv.equations.evaluate import admits, evaluate
from pv.equations.examples import Example
from pv.equations.parse import Check, Definition
from pv.equations.tolerance import Limits


class ArgumentCopies:
    """Copies of the arguments of a call, to find arguments that the code changed."""

    def __init__(self) -> None:
        self._copies: list[tuple[str, object, object]] = []

    def add(self, text: str, value: object) -> None:
        """Copy an argument; `text` is its expression in the call."""
        self._copies.append((text, value, _copy(value)))

    def changed(self) -> Iterator[str]:
        """Yield the expressions of the arguments that differ from their copies."""
        return (text for text, value, before in self._copies if not same(value, before))


def same(one: Any, other: Any) -> bool:
    """Return whether arrays have the same dtype and numbers, and containers the same items; NaN is equal to NaN."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        # NaN != NaN, so positions at which both arrays have NaN need a comparison of their own.
        alike = one.shape == other.shape and one.dtype == other.dtype
        return alike and bool(((one == other) | (one.isnan() & other.isnan())).all())
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and same(list(one.values()), list(other.values()))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one is other or bool(one == other)


def _copy(value: object) -> object:
    """Copy a tensor, or a dict, list or tuple with the tensors inside; return other values unchanged."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_copy, value))
    return value


Layout = Callable[[Tensor], Tensor]


class Refuted(AssertionError):
    """The code or a related equation differs from the equation by more than rounding, or a check of the code failed.

    Args:
        message: The values that differ, or the check that failed.
        cause: How the values differ, in a few words; "" if it is unknown.
    """

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause


class NotComparable(Exception):
    """The code returned no value to compare: `returns` must select one, or the function must return its values."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A value that must equal a result of an equation.

    Attributes:
        template: A sentence with two `{}`: the first for `result`, the second for the value of the equation.
        result: The value that is compared.
        is_from_code: Whether the code computed the value; False if it was computed in float64 from another equation.
        index: The index of the result of the equation.
        count: The number of results of the equation.
    """

    template: str
    result: Tensor
    is_from_code: bool = True
    index: int = 0
    count: int = 1

    def difference(self, value: Tensor) -> Tensor:
        """Return the absolute difference of the result from `value`, which has the same shape; inf instead of NaN."""
        result = self.result.detach().cpu().double()
        largest = torch.finfo(self.result.dtype).max if self.result.is_floating_point() else torch.inf
        # A float64 value beyond the range of the result's dtype rounds to infinity: then infinity is correct.
        same = (result == value) | (result.isinf() & (result.sign() * value > largest))
        return torch.where(same, 0.0, (result - value).abs()).nan_to_num(nan=torch.inf)

    def limit(self, limits: Limits) -> Tensor:
        """Return the largest difference that is allowed."""
        return limits.of_code(self.index, self.result.dtype) if self.is_from_code else limits.of_equation(self.index)


@dataclass(frozen=True, slots=True)
class Observer:
    """Calls the code under contract on `device`, and evaluates equations on the CPU.

    Attributes:
        equations: The equations of the contract, by name.
        claim: The equation that is compared.
        subject: The module or object under contract.
        device: The device of the arguments of the code.
        layout: Changes the memory layout of an array that is passed to the code, but not its values.
    """

    equations: Mapping[str, Definition]
    claim: Definition
    subject: object
    device: str
    layout: Layout = lambda array: array

    def comparisons(self, example: Example) -> Iterator[Comparison]:
        """Yield every value that must equal the equation on an example. Exceptions of the code propagate."""
        if self.claim.derivative is not None:
            yield from self._derivatives(example)
        if self.claim.call is not None:
            yield from self.results_of_code(example)

    def results_of_code(self, example: Example) -> Iterator[Comparison]:
        """Yield the results of the code.

        Raise `Refuted` if a result has the wrong dtype, the code changes an argument, or a second call differs.
        """
        assert self.claim.call is not None
        count, function = len(self.claim.results), self.claim.call.function
        result, _ = self._result_and_leaf(self.claim, example)
        expected = self.claim.checks.dtype(example.dtype)
        if expected:
            _check_dtype(result, expected, count, function)
        results = _result_tensors(result, count, function)
        if Check.REPEATABLE in self.claim.checks.names:
            # Call again with new copies of the arguments: kept state or unordered reductions change the result.
            second, _ = self._result_and_leaf(self.claim, example)
            _check_same(results, _result_tensors(second, count, function), function)
        template = f"the code of {function} returned {{}}, the equation gives {{}}"
        yield from (Comparison(template, tensor, True, index, count) for index, tensor in enumerate(results))

    def _derivatives(self, example: Example) -> Iterator[Comparison]:
        """Yield the derivative of the equation that the claim differentiates, and of the code of that equation."""
        derivative = self.claim.derivative
        assert derivative is not None
        equation, by = self.equations[derivative.equation], derivative.variable
        (value,), leaf = evaluate(equation, example, differentiable=by)
        assert leaf is not None
        # The equation is evaluated in float64, so this derivative has no error of float32.
        (slope,) = torch.autograd.grad(value.sum(), leaf)
        message = f"is {{}}, the equation {self.claim.name} gives {{}}"
        template = f"the derivative of the equation {equation.name} by {by} {message}"
        # The first axis is the axis of runs that `evaluate` adds, here of size 1.
        yield Comparison(template, slope[0], is_from_code=False)
        if equation.call is not None:
            function = equation.call.function
            result, leaf = self._result_and_leaf(equation, example, differentiable=by)
            assert leaf is not None
            (tensor,) = _result_tensors(result, 1, function)
            gradient = _gradient(tensor, leaf, function, by)
            yield Comparison(f"the derivative of the code of {function} by {by} {message}", gradient)

    def _result_and_leaf(
        self, claim: Definition, example: Example, differentiable: str = ""
    ) -> tuple[object, Tensor | None]:
        """Return the result of the code, and the tensor passed for the variable `differentiable`."""
        assert claim.call is not None
        values = arguments(claim, example, self.device)
        values = {name: self.layout(value) if isinstance(value, Tensor) else value for name, value in values.items()}
        leaf = None
        if differentiable:
            # The code must get the leaf tensor itself, because the result is differentiated with respect to the leaf.
            leaf = values[differentiable] = torch.as_tensor(values[differentiable], device=self.device).requires_grad_()
        copies = ArgumentCopies()
        copy = copies.add if Check.INPUTS_UNCHANGED in claim.checks.names else None
        result = claim.call.evaluate(self.subject, values, copy)
        if (changed := next(copies.changed(), None)) is not None:
            raise Refuted(f"the code of {claim.call.function} changed its argument {changed}")
        arrays = {n: value for n, value in values.items() if n in claim.call.names and isinstance(value, Tensor)}
        return _value(claim, claim.call.function, result, arrays), leaf


def _value(claim: Definition, function: str, result: object, arrays: Mapping[str, Tensor]) -> object:
    """Return the value of a call: its result, or the value of `returns`, which may select an array the call changed."""
    if claim.returns is not None:
        return evaluate_returns(claim.returns, result, arrays)
    if result is None and arrays:
        hint = f"name the argument that it changes, such as `returns: {next(iter(arrays))}`"
        raise NotComparable(f"{function} returned None: {hint}")
    return result


def arguments(claim: Definition, example: Example, device: str) -> dict[str, object]:
    """Return the values of the variables and sizes as the code gets them, as new copies."""
    variables = claim.variables
    arrays = {n: as_argument(array, variables[n].kind, example.dtype, device) for n, array in example.arrays.items()}
    return {**example.sizes, **arrays}


def as_argument(array: Tensor, kind: str, dtype: str, device: str) -> object:
    """Return an array of an example as the code gets it.

    Args:
        array: The array, float64, int64 or bool.
        kind: The kind of the variable; it decides between bool, int and float for arrays without axes.
        dtype: The name of the dtype of floating-point arrays.
        device: The device of the tensor.

    Returns:
        A new tensor, since code may write into its arguments; a Python number for an array without axes.
    """
    if array.dim() == 0:
        return bool(array) if kind == "mask" else int(array) if kind in ("int", "index") else float(array)
    expected = getattr(torch, dtype) if array.is_floating_point() else array.dtype
    return array.to(device=device, dtype=expected, copy=True)


def _gradient(result: Tensor, leaf: Tensor, function: str, by: str) -> Tensor:
    """Return the derivative of the code's result by `leaf`; 0 if the gradient of the result does not reach `leaf`.

    Raise `Refuted` if the result carries no gradient.
    """
    if not result.requires_grad:
        raise Refuted(
            f"the result of the code of {function} carries no gradient, so it cannot be differentiated by {by}"
        )
    # A result that does not use the variable has the derivative 0, not None.
    (gradient,) = torch.autograd.grad(result.sum(), leaf, allow_unused=True, materialize_grads=True)
    return gradient


def _result_tensors(result: Any, count: int, function: str) -> tuple[Tensor, ...]:
    """Return the `count` values of a result as tensors. Raise `Refuted` or `NotComparable` for any other result."""
    if count > 1 and (isinstance(result, str | Mapping) or not isinstance(result, Iterable)):
        _check_ran(result, function)
        raise NotComparable(f"{function} returned {_kind(result)}: select the {count} values with `returns`")
    results = (result,) if count == 1 else tuple(result)
    if len(results) != count:
        raise Refuted(f"the code returns {len(results)} values, the equation has {count}")
    return tuple(_tensor(result, function) for result in results)


def _tensor(value: object, function: str) -> Tensor:
    """Return a result as a tensor of real numbers.

    Raises:
        Refuted: The result is complex.
        NotComparable: The result is no array of numbers; the contract must select the value with `returns`.
    """
    tensor = _inferred_tensor(value)
    if tensor is not None and tensor.is_complex():
        raise Refuted(f"the code of {function} returned complex numbers, the equation has real values")
    # PyTorch infers float32 for Python floats, so convert them again below, to float64, which represents them exactly.
    if tensor is not None and (isinstance(value, Tensor) or not tensor.is_floating_point()):
        return tensor
    try:
        return torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        _check_ran(value, function)
        hint = f", such as `result[{next(iter(value))!r}]`" if isinstance(value, Mapping) and value else ""
        message = f"{function} returned {_kind(value)}: select the value with `returns`{hint}"
        raise NotComparable(message) from error


def _check_ran(value: object, function: str) -> None:
    """Raise `NotComparable` if `value` is a generator or coroutine: then the body of the function has not run."""
    if isinstance(value, Generator | Coroutine | AsyncGenerator):
        kind = "coroutine" if isinstance(value, Coroutine) else "generator"
        raise NotComparable(
            f"{function} returned a {kind}, which cannot be compared: write a function that returns its values"
        )


def _inferred_tensor(value: object) -> Tensor | None:
    """Return a value as a tensor of the dtype that torch infers; None if torch cannot convert the value."""
    with suppress(TypeError, ValueError, RuntimeError, OverflowError):
        return torch.as_tensor(value)
    return None


def _kind(value: object) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"


def _check_dtype(result: Any, expected: str, count: int, function: str) -> None:
    """Raise `Refuted` if the dtype of a result is not `expected`, the dtype that `result_dtype` requires."""
    for item in (result,) if count == 1 else tuple(result):
        dtype = str(item.dtype).removeprefix("torch.") if isinstance(item, Tensor) else type(item).__name__
        if dtype != expected:
            raise Refuted(f"the code of {function} returned {dtype}, `result_dtype` is {expected}")


def _check_same(first: tuple[Tensor, ...], second: tuple[Tensor, ...], function: str) -> None:
    """Raise `Refuted` if two calls with equal arguments returned different results."""
    for one, other in zip(first, second, strict=True):
        if not same(one, other):
            raise Refuted(f"the code of {function} returned another result in a second call with equal arguments")


def compare(seen: Comparison, limits: Limits) -> None:
    """Raise `Refuted` if `seen` differs from its equation by more than allowed; the message has the worst element."""
    value = limits.values[seen.index]
    which = f" ({seen.index + 1} of several)" if seen.count > 1 else ""
    if seen.result.shape != value.shape:
        raise Refuted(seen.template.format(f"shape {list(seen.result.shape)}{which}", f"shape {list(value.shape)}"))
    difference, allowed = seen.difference(value), seen.limit(limits)
    if not (difference > allowed).any():
        return
    # Where no difference is allowed, divide by the smallest positive number instead of 0.
    ratio = difference / allowed.clamp_min(torch.finfo(torch.float64).tiny)
    worst = int(ratio.nan_to_num(nan=0.0).argmax())
    at = f" at [{','.join(map(str, _unravel(worst, list(value.shape))))}]" if value.dim() else ""
    actual, expected, limit = (float(tensor.flatten()[worst]) for tensor in (seen.result.detach(), value, allowed))
    text = seen.template.format(f"{actual:.7g}{at}{which}", f"{expected:.7g}")
    cause = _cause(seen, value, allowed, limits.equation.results[seen.index])
    raise Refuted(f"{text} (tolerance ±{limit:.2g})", cause)


def _cause(seen: Comparison, value: Tensor, allowed: Tensor, axes: Sequence[str]) -> str:
    """Describe how an array differs from its equation; "" for a single number."""
    if value.dim() == 0:  # possibly without PyTorch, which the following import needs
        return ""
    from pv.equations.causes import cause

    return cause(seen.result.detach().cpu().double(), value, allowed, axes)


def _unravel(index: int, shape: list[int]) -> list[int]:
    """Convert the index of an element in the flattened array to one index per axis."""
    indices: list[int] = []
    for size in reversed(shape):
        indices.insert(0, index % size)
        index //= size
    return indices


def layouts(claim: Definition, example: Example) -> Iterator[tuple[str, Layout, Example]]:
    """Yield the memory layouts that a claim checks: name, function that applies the layout, and example to use."""
    expected = claim.checks.names if claim.call is not None else frozenset()
    if Check.NONCONTIGUOUS_INPUTS in expected:
        yield "non-contiguous inputs", _noncontiguous, example
    if Check.EXPANDED_INPUTS in expected:
        repeated = _repeat_first_slices(claim, example)
        if admits(claim, repeated):
            yield "expanded inputs", _expanded_view, repeated


def _noncontiguous(array: Tensor) -> Tensor:
    """Return an equal array with other strides: its axes are transposed in memory, with gaps between elements."""
    if array.dim() == 0:
        return array
    # Interleave the elements with copies of them: strides of 2 and a transposed order in memory.
    turned = array.transpose(0, -1)
    return torch.stack([turned, turned], -1)[..., 0].transpose(0, -1)


def _expanded_view(array: Tensor) -> Tensor:
    """Return the array as an expanded view of its first slice if all slices are equal; otherwise the array itself."""
    expanded = array[:1].expand_as(array) if array.dim() and array.numel() else array
    return expanded if torch.equal(expanded, array) else array


def _repeat_first_slices(claim: Definition, example: Example) -> Example:
    """Return the example with all slices of each array (along the first axis) equal to the first slice.

    A one-dimensional distribution keeps its values, since equal probabilities would not sum to 1.
    """
    arrays = {}
    for name, array in example.arrays.items():
        is_distribution = claim.variables[name].kind in DISTRIBUTIONS and array.dim() == 1
        is_unchanged = array.dim() == 0 or not array.numel() or is_distribution
        arrays[name] = array if is_unchanged else array[:1].expand_as(array).clone()
    return replace(example, arrays=arrays)


MAX_LOOSE = 0.9
"""The tolerance of an equation is too wide if it accepts zeros on at least this fraction of the examples."""


@dataclass
class _Count:
    """Counts the examples of one comparison; an example is loose if zeros would be accepted as results."""

    examples: int = 0
    loose: int = 0
    largest: tuple[float, float] = (0.0, 0.0)
    """The largest value in the loose examples, and the tolerance of this value."""


@dataclass
class ToleranceCheck:
    """Counts the examples on which zeros instead of the code's results would be accepted."""

    _counts: dict[tuple[str, int], _Count] = field(default_factory=dict)

    def add(self, seen: Comparison, limits: Limits) -> None:
        """Count a result of the code, unless the contract sets its tolerance, which is then not judged."""
        magnitudes = limits.values[seen.index].abs()
        if not seen.is_from_code or limits.equation.accuracy.tolerance is not None or not magnitudes.any():
            return
        count = self._counts.setdefault((seen.template, seen.index), _Count())
        count.examples += 1
        allowed = seen.limit(limits)
        if (magnitudes <= allowed).all():
            count.loose += 1
            at = magnitudes.argmax()
            count.largest = max(count.largest, (float(magnitudes.flatten()[at]), float(allowed.flatten()[at])))

    @property
    def reason(self) -> str:
        """Return the reason why a tolerance is too wide to refute incorrect code; "" if no tolerance is."""
        for count in self._counts.values():
            if count.loose >= MAX_LOOSE * count.examples:
                value, tolerance = count.largest
                return (
                    f"the tolerance ±{tolerance:.2g} is no smaller than the values, up to {value:.2g}, in {count.loose}"
                    f" of {count.examples} examples: avoid cancellation in the equation, or give a `tolerance`"
                )
        return ""
