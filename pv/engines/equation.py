"""Tries a claim that is an equation: draws examples of its domain, and compares the code under contract with its value.

On every example the equation is compared with the code that implements it. If it is the derivative of another
equation, it is also compared with the derivative of that equation, and with the gradient of that equation's code by
automatic differentiation. Its invariants are checked too.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from pv.engines.blame import Blame, said
from pv.engines.encoding import decode, encode
from pv.engines.equation_mutants import KeptExamples, tried
from pv.engines.observed import Observation, Observer, Refuted, compare, given
from pv.engines.property import Settings
from pv.engines.stream import Stream
from pv.engines.trial import TrialStatus
from pv.equations.accuracy import UNITS
from pv.equations.draw import Drawer, Example
from pv.equations.limits import Limits
from pv.equations.parse import parse_equations
from pv.equations.shrink import Shrinker
from pv.equations.system import Claim, System

MAX_REJECTED = 20  # examples outside `requires` for each requested one


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
    """Try the equation `name` of a contract on `how.examples` examples, and return the record of the trial."""
    parsed, problems = parse_equations(equations)
    if problems:
        raise problems[0]  # lint reports these first
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
    kept: KeptExamples = field(default_factory=KeptExamples)

    def run(self) -> dict[str, Any]:
        for example in self._examples():
            try:
                self.kept.add(example, self._check(example))
            except NoValue as error:
                return self._end(TrialStatus.ERROR, str(error), example, error)
            except Exception as error:
                return self._failed(example, error)
            self.valid += 1
        if self.valid == 0:
            return self._end(TrialStatus.NO_EXAMPLES, "no example fulfils `requires`")
        return self._end(TrialStatus.HELD, "") | self._sensitivity()

    def _sensitivity(self) -> dict[str, Any]:
        """Return which equation mutants the examples kill; on a mutant of the code and on a replay none is tried."""
        if self.how.stop_at_first or self.how.replay or self.device != "cpu":
            return {}
        return {"equation_mutants": tried(self.claim, self.kept)}

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
        status = self._status(error)
        if status not in (TrialStatus.REFUTED, TrialStatus.RAISED):
            return self._end(status, said(error), example, error)
        self.stream.put("counterexample", status=status.value, **self._counterexample(example, error))
        if self.how.stop_at_first:
            return self._end(status, said(error), example, error)
        plain = replace(example, dtype="float32")
        if "float32" in self.claim.accuracy.dtypes and self._fails(plain):
            example = plain
        smallest = Shrinker(self.claim.equation.variables, self._fails).smallest(example)
        try:
            self._check(smallest)
        except Exception as last:
            return self._end(self._status(last), said(last), smallest, last, shrunk=True)
        return self._end(TrialStatus.FLAKY, f"the same input failed once and passed once; first failure: {said(error)}")

    def _fails(self, example: Example) -> bool:
        if not self.system.admits(self.claim, example):
            return False
        try:
            self._check(example)
        except NoValue:
            return False
        except Exception as error:
            return self._status(error) in (TrialStatus.REFUTED, TrialStatus.RAISED)
        return False

    def _status(self, error: BaseException) -> TrialStatus:
        return TrialStatus.REFUTED if isinstance(error, Refuted) else self.blame.status(error)

    def _check(self, example: Example) -> list[Observation]:
        """Return the observations of an example. Raise `Refuted`, `NoValue`, or what the code raises.

        The equation is evaluated before the code is called.
        """
        equation = self.claim.equation
        exact = equation.exact(example)
        if any(result.isnan().any() for result in exact):
            raise NoValue(
                f"{equation.name} has no value (NaN) here, inside its domain; exclude the point with `requires`"
            )
        for broken in self.system.broken_invariants(self.claim, example):
            raise Refuted(f"the invariant `{broken}` of {equation.name} does not hold here")
        limits, found = Limits(equation, self.claim.accuracy, example, exact), []
        for seen in Observer(self.system, self.claim, self.subject, self.device).seen(example):
            compare(seen, limits)
            found.append(seen)
        return found

    def _counterexample(self, example: Example, error: BaseException) -> dict[str, Any]:
        kinds = {name: variable.kind for name, variable in self.claim.equation.variables.items()}
        encoded = {n: encode(given(each, kinds[n], example.dtype, "cpu")) for n, each in example.arrays.items()}
        return {
            "arguments": {name: written for name, (written, _) in encoded.items()},
            "exact": all(exact for _, exact in encoded.values()),
            "error": said(error),
            "frames": [] if isinstance(error, Refuted | NoValue) else self.blame.frames(error),
        }

    def _end(
        self, status: TrialStatus, detail: str, example: Example | None = None, error: BaseException | None = None,
        *, shrunk: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        record = {"status": status.value, "detail": detail, "valid": self.valid, "invalid": self.invalid}
        record["asked"] = 1 if self.how.replay else self.how.examples
        if example is not None and error is not None:
            record |= self._counterexample(example, error) | {"shrunk": shrunk}
        return record


def _array(value: Any, kind: str) -> Tensor:
    """Return the array of an example for an argument of the code."""
    return torch.as_tensor(value).to({"index": torch.int64, "mask": torch.bool}.get(kind, torch.float64))
