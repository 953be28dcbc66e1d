"""Attacks a claim that is an equation: draws its domain, and compares the code under contract with its value.

What is held against what, on every example: the code that implements the equation against the equation; if it is the
derivative of another equation, the derivative of that one against it, and the gradient that the other's code has by
automatic differentiation against it; and the invariants of the equation.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from pv.engines.blame import Blame, said
from pv.engines.encoding import decode, encode
from pv.engines.observed import Observation, Observer, Refuted, compare, given
from pv.engines.property import Settings
from pv.engines.stream import Stream
from pv.engines.told_apart import Kept, judged
from pv.equations.accuracy import UNITS
from pv.equations.draw import Drawer, Example
from pv.equations.equation import Limits
from pv.equations.parsed import parse_equations
from pv.equations.shrink import Shrinker
from pv.equations.system import Claim, System
from pv.evidence import Ending

MAX_REJECTED = 20  # examples outside `requires` for each that was asked for


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
    kept: Kept = field(default_factory=Kept)

    def run(self) -> dict[str, Any]:
        for example in self._examples():
            try:
                self.kept.add(example, self._check(example))
            except NoValue as error:
                return self._end(Ending.BROKEN, str(error), example, error)
            except Exception as error:
                return self._failed(example, error)
            self.valid += 1
        if self.valid == 0:
            return self._end(Ending.BARREN, "no example fulfils `requires`")
        return self._end(Ending.HELD, "") | self._teeth()

    def _teeth(self) -> dict[str, Any]:
        """A mutant of the code shows by itself whether it is seen, and one example that is replayed shows nothing."""
        if self.how.stop_at_first or self.how.replay or self.device != "cpu":
            return {}
        return {"changes": judged(self.claim, self.kept)}

    def _examples(self) -> Iterator[Example]:
        if self.how.replay:
            yield self._given(self.how.replay)
            return
        drawer = Drawer(self.claim.equation.variables, self.how.seed, self.claim.accuracy.dtypes)
        while self.valid < self.how.examples and self.invalid < MAX_REJECTED * self.how.examples:
            example = drawer.example()
            if self.system.admits(self.claim, example):
                yield example
            else:
                self.invalid += 1

    def _given(self, text: str) -> Example:
        if not text.startswith("{"):
            raise ValueError("an equation is replayed by its exact arguments, which the JSON report has")
        variables, decoded = self.claim.equation.variables, decode(json.loads(text))
        arrays = {name: _array(value, variables[name].kind) for name, value in decoded.items()}
        sizes: dict[str, int] = {}
        for name, array in arrays.items():
            sizes |= dict(zip(variables[name].axes, array.shape, strict=True))
        types = [str(v.dtype).removeprefix("torch.") for v in decoded.values() if isinstance(v, Tensor)]
        dtype = next((name for name in types if name in UNITS), "float32")
        return Example(arrays, self.system.completed(self.claim, sizes), dtype)

    def _failed(self, example: Example, error: Exception) -> dict[str, Any]:
        self.valid += 1
        ending = self._ending(error)
        if ending not in (Ending.REFUTED, Ending.RAISED):
            return self._end(ending, said(error), example, error)
        self.stream.put("counterexample", ending=ending.value, **self._counterexample(example, error))
        if self.how.stop_at_first:
            return self._end(ending, said(error), example, error)
        plain = replace(example, dtype="float32")
        if "float32" in self.claim.accuracy.dtypes and self._fails(plain):
            example = plain
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

    def _check(self, example: Example) -> list[Observation]:
        """What was seen on an example, if all of it is what the equation says. Raises Refuted, NoValue, or the code's.

        The equation has its values before the code is asked.
        """
        equation = self.claim.equation
        exact = equation.exact(example)
        if any(result.isnan().any() for result in exact):
            raise NoValue(
                f"{equation.name} has no value (NaN) here, inside its domain; say where it has one: `requires`"
            )
        for broken in self.system.broken_invariants(self.claim, example):
            raise Refuted(f"the invariant `{broken}` of {equation.name} does not hold here")
        limits, found = Limits(equation, self.claim.accuracy, example, exact), []
        for seen in Observer(self.system, self.claim, self.subject, self.device).seen(example):
            compare(seen, equation.name, limits)
            found.append(seen)
        return found

    def _counterexample(self, example: Example, error: BaseException) -> dict[str, Any]:
        kinds = {name: variable.kind for name, variable in self.claim.equation.variables.items()}
        told = {n: encode(given(each, kinds[n], example.dtype, "cpu")) for n, each in example.arrays.items()}
        return {
            "arguments": {name: written for name, (written, _) in told.items()},
            "exact": all(exact for _, exact in told.values()),
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


def _array(value: Any, kind: str) -> Tensor:
    """The array of an example for what the code got."""
    return torch.as_tensor(value).to({"index": torch.int64, "mask": torch.bool}.get(kind, torch.float64))
