"""Attacks a claim that is an equation: draws its domain, and compares the code under contract with its value.

What is held against what, on every example: the code that implements the equation against the equation; if it is the
derivative of another equation, the derivative of that one against it, and the gradient that the other's code has by
automatic differentiation against it; and the invariants of the equation.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pv.engines.blame import Blame, said
from pv.engines.encoding import decode, encode
from pv.engines.property import Settings
from pv.engines.stream import Stream
from pv.equations.call import returned
from pv.equations.draw import Drawer, Example
from pv.equations.equation import FLOAT32, FLOAT64
from pv.equations.parsed import parse_equations
from pv.equations.shrink import Shrinker
from pv.equations.system import Claim, System
from pv.evidence import Ending

MAX_REJECTED = 20  # examples outside `requires` for each that was asked for


class Refuted(AssertionError):
    """Code and equation, or two equations, are further apart than rounding explains."""


class NoValue(Exception):
    """The equation has no value at a point of its domain: an error of the contract."""


def attack(
    equations: Mapping[str, Mapping[str, Any]],
    name: str,
    subject: Any,
    device: str,
    how: Settings,
    blame: Blame,
    stream: Stream,
) -> dict[str, Any]:
    """Tries the equation `name` of those of a contract on `how.examples` examples; returns the record of its end."""
    parsed, problems = parse_equations(equations)
    if problems:
        raise problems[0]  # lint has refused the contract before
    system = System(parsed)
    return _Attack(system, system.claims[name], subject, device, how, blame, stream).run()


@dataclass
class _Attack:
    system: System
    claim: Claim
    subject: Any
    device: str
    how: Settings
    blame: Blame
    stream: Stream
    valid: int = 0
    invalid: int = 0
    found: tuple[Example, BaseException] | None = field(default=None)

    def run(self) -> dict[str, Any]:
        for example in self._examples():
            try:
                self._check(example)
            except NoValue as error:
                return self._end(Ending.BROKEN, str(error), example, error)
            except Exception as error:
                return self._failed(example, error)
            self.valid += 1
        if self.valid == 0:
            return self._end(Ending.BARREN, "no example fulfils `requires`")
        return self._end(Ending.HELD, "")

    def _examples(self) -> Iterator[Example]:
        if self.how.replay:
            yield self._given(self.how.replay)
            return
        drawer = Drawer(self.claim.equation.variables, self.how.seed)
        while self.valid < self.how.examples and self.invalid < MAX_REJECTED * self.how.examples:
            example = drawer.example()
            if self.system.admits(self.claim, example):
                yield example
            else:
                self.invalid += 1

    def _given(self, text: str) -> Example:
        if not text.startswith("{"):
            raise ValueError("an equation is replayed by its exact arguments, which the JSON report has")
        import json

        arrays = {name: decode(value) for name, value in json.loads(text).items()}
        sizes: dict[str, int] = {}
        for name, variable in self.claim.equation.variables.items():
            if name in arrays:
                sizes |= dict(zip(variable.axes, arrays[name].shape, strict=True))
        return Example(arrays, self.system.completed(self.claim, sizes))

    def _failed(self, example: Example, error: Exception) -> dict[str, Any]:
        self.valid += 1
        ending = self._ending(error)
        if ending not in (Ending.REFUTED, Ending.RAISED):
            return self._end(ending, said(error), example, error)
        self.stream.put("counterexample", ending=ending.value, **self._counterexample(example, error))
        if self.how.stop_at_first:
            return self._end(ending, said(error), example, error)
        smallest = Shrinker(self.claim.equation.variables, self._fails).smallest(example)
        try:
            self._check(smallest)
        except Exception as last:
            return self._end(self._ending(last), said(last), smallest, last, shrunk=True)
        return self._end(Ending.FLAKY, f"the same input failed once and passed once; it first said: {said(error)}")

    def _fails(self, example: Example) -> bool:
        if not self.system.admits(self.claim, example):
            return False
        try:
            self._check(example)
        except NoValue:
            return False
        except Exception as error:
            return self._ending(error) in (Ending.REFUTED, Ending.RAISED)
        return False

    def _ending(self, error: BaseException) -> Ending:
        return Ending.REFUTED if isinstance(error, Refuted) else self.blame.ending(error)

    def _check(self, example: Example) -> None:
        claim, equation = self.claim, self.claim.equation
        exact = equation.exact(example)
        if any(result.isnan().any() for result in exact):
            raise NoValue(
                f"{equation.name} has no value (NaN) here, inside its domain; say where it has one: `requires`"
            )
        for broken in self.system.broken_invariants(claim, example):
            raise Refuted(f"the invariant `{broken}` of {equation.name} does not hold here")
        if claim.derivative is not None:
            self._check_derivative(example, exact)
        if claim.call is not None:
            allowed = equation.allowed(example, exact, FLOAT32)
            results = _several(self._called(claim, example)[0], len(exact))
            for place, (result, value, limit) in enumerate(zip(results, exact, allowed, strict=True)):
                _compare(
                    f"the code of {claim.call.function} gives {{}}",
                    equation.name,
                    place if len(exact) > 1 else None,
                    result,
                    value,
                    limit,
                )

    def _check_derivative(self, example: Example, exact: tuple[Tensor, ...]) -> None:
        derivative = self.claim.derivative
        assert derivative is not None
        of, by = self.system.claims[derivative.equation], derivative.variable
        (value,), leaf = of.equation.at(example, differentiable=by)
        assert leaf is not None
        (slope,) = torch.autograd.grad(value.sum(), leaf)
        name = self.claim.equation.name
        _compare(
            f"the derivative of the equation {of.equation.name} by {by} is {{}}", name, None, slope[0], exact[0],
            self.claim.equation.allowed(example, exact, FLOAT64)[0],
        )  # fmt: skip
        if of.call is None:
            return
        result, given = self._called(of, example, differentiable=by)
        (gradient,) = torch.autograd.grad(_several(result, 1)[0].sum(), given)
        allowed = self.claim.equation.allowed(example, exact, FLOAT32)[0]
        _compare(
            f"the derivative of the code of {of.call.function} by {by} is {{}}", name, None, gradient, exact[0], allowed
        )

    def _called(self, claim: Claim, example: Example, differentiable: str = "") -> tuple[Any, Any]:
        """What the code answers, and the tensor that stood for the variable `differentiable`."""
        assert claim.call is not None
        values = {name: _given(array, claim, name, self.device) for name, array in example.arrays.items()}
        values |= {axis: size for axis, size in example.sizes.items() if axis not in values}
        leaf = None
        if differentiable:
            leaf = values[differentiable] = values[differentiable].requires_grad_()
        function = self.subject
        for part in claim.call.function.split("."):
            function = getattr(function, part)
        positional, named = claim.call.arguments(values)
        result = function(*positional, **named)
        return (returned(claim.returns, result) if claim.returns is not None else result), leaf

    def _counterexample(self, example: Example, error: BaseException) -> dict[str, Any]:
        return {
            "arguments": {name: encode(array)[0] for name, array in example.arrays.items()},
            "exact": True,
            "error": said(error),
            "frames": [] if isinstance(error, Refuted | NoValue) else self.blame.frames(error),
        }

    def _end(
        self, ending: Ending, detail: str, example: Example | None = None, error: BaseException | None = None,
        *, shrunk: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        record = {"ending": ending.value, "detail": detail, "valid": self.valid, "invalid": self.invalid}
        record["asked"] = 1 if self.how.replay else self.how.examples
        if example is not None and error is not None:
            record |= self._counterexample(example, error) | {"shrunk": shrunk}
        return record


def _given(array: Tensor, claim: Claim, name: str, device: str) -> Any:
    """What the code gets for an array of an example: float32, integers, booleans; Python numbers without axes."""
    kind = claim.equation.variables[name].kind
    if array.dim() == 0:
        return bool(array) if kind == "mask" else int(array) if kind in ("int", "index") else float(array)
    return (array.float() if array.is_floating_point() else array).to(device)


def _several(result: Any, count: int) -> tuple[Tensor, ...]:
    results = (result,) if count == 1 else tuple(result)
    if len(results) != count:
        raise Refuted(f"the code returns {len(results)} values, the equation has {count}")
    return tuple(each if isinstance(each, Tensor) else torch.as_tensor(each, dtype=torch.float64) for each in results)


def _compare(what: str, name: str, place: int | None, result: Tensor, value: Tensor, allowed: Tensor) -> None:
    """Raises Refuted where `result` is further from `value` than allowed, showing the worst element."""
    result, of = result.detach().cpu().double(), "" if place is None else f" ({place + 1} of several)"
    if result.shape != value.shape:
        shapes = list(result.shape), list(value.shape)
        raise Refuted(f"{what.format(f'shape {shapes[0]}')}{of}, the equation {name} has {shapes[1]}")
    apart = torch.where(result == value, 0.0, (result - value).abs()).nan_to_num(nan=torch.inf)
    ratio = apart / allowed
    if not (ratio > 1).any():
        return
    worst = int(ratio.argmax())
    at = f" at [{','.join(map(str, _unravel(worst, list(value.shape))))}]" if value.dim() else ""
    found, says, limit = (float(each.flatten()[worst]) for each in (result, value, allowed))
    raise Refuted(
        f"{what.format(f'{found:.7g}')}{at}{of}, the equation {name} says {says:.7g}; rounding explains ±{limit:.2g}"
    )


def _unravel(index: int, shape: list[int]) -> list[int]:
    places: list[int] = []
    for size in reversed(shape):
        places.insert(0, index % size)
        index //= size
    return places
