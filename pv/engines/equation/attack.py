"""Try an equation claim: draw examples of its domain, and compare the code under contract with the equation.

On every example

1. the invariants of the equation are checked;
2. the equation is compared with the code that implements it;
3. a derivative of another equation is compared with the derivative of this equation, and with the gradient of this
   equation's code by automatic differentiation.

If all examples held, mutants of the equation are tried on the recorded results of the code, which shows that the attack
can fail.
"""

import json
import linecache
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from traceback import walk_tb

from pv.engines.encoding import decode, encode, show
from pv.engines.equation.comparison import (
    Comparison,
    NotComparable,
    Observer,
    Refuted,
    ToleranceCheck,
    arguments,
    as_argument,
    compare,
    layouts,
)
from pv.engines.failures import FailureClassifier, describe_error
from pv.engines.property.attack import Settings
from pv.engines.stream import Stream
from pv.engines.trial import TrialStatus
from pv.equations.arrays import Tensor, torch
from pv.equations.call import defined_at
from pv.equations.domain import free_sizes
from pv.equations.evaluate import admits, exact_values
from pv.equations.examples import Drawer, Example, Shrinker
from pv.equations.invariants import broken_invariants
from pv.equations.mutants import MutatedEquation, mutants
from pv.equations.parse import UNITS, Definition, parse_equations
from pv.equations.tolerance import SLACK, Limits

MAX_EXAMPLES = 200
MAX_ELEMENTS = 2**20
"""The total number of elements of the recorded examples: it limits memory and, for each mutant, time."""


def try_mutants(claim: Definition, recorded: "RecordedExamples") -> dict[str, object]:
    """Try the mutants of an equation on recorded results; return their number, the number killed, and the survivors."""
    survivors, total = [], 0
    for mutant in mutants_of(claim):
        total += 1
        mutated = equation_with(claim, mutant)
        if not any(kills(mutated, example, seen) for example, seen in recorded.examples):
            survivors.append({key: getattr(mutant, key) for key in ("equation", "line", "column", "before", "after")})
    return {"total": total, "killed": total - len(survivors), "survivors": survivors}


def mutants_of(claim: Definition) -> Iterator[MutatedEquation]:
    """Yield the mutants of a claim's equation and of the equations that it calls."""
    return mutants(claim.name, claim.callees, claim.results)


def equation_with(equation: Definition, mutant: MutatedEquation) -> Definition:
    """Return an equation with a mutant in it."""
    return replace(equation, formula=mutant.callees[equation.name].formula, callees=mutant.callees)


def kills(mutated: Definition, example: Example, seen: Sequence[Comparison]) -> bool:
    """Return whether an example kills a mutated equation: a result of the code differs from it by more than allowed.

    Args:
        mutated: The mutated equation.
        example: The example.
        seen: The results of the code on the example.
    """
    try:
        # A mutant without a value (NaN) where the equation has one is killed as well.
        values = exact_values(mutated, example)
        limits = Limits(mutated, example, values)
        return any(bool(v.isnan().any()) for v in values) or any(
            _differs_from_equation(comparison, limits) for comparison in seen
        )
    except Exception:  # a mutant that cannot be evaluated is killed
        return True


def _differs_from_equation(seen: Comparison, limits: Limits) -> bool:
    """Return whether a recorded result differs from the mutated equation by more than allowed."""
    value = limits.values[seen.index]
    if seen.result.shape != value.shape:
        return True
    apart = seen.difference(value)
    unit = limits.unit(seen.result.dtype) if seen.by_code else 0.0
    smallest = SLACK * unit * value.abs().nan_to_num(posinf=0.0)
    if limits.equation.accuracy.tolerance is None and not (apart > smallest).any():
        return False  # within the smallest possible limit; computing the exact limit takes eight more evaluations
    return bool((apart > seen.limit(limits)).any())


class RecordedExamples:
    """The first examples on which the equation held, with the results of the code, at most `MAX_EXAMPLES`."""

    def __init__(self) -> None:
        self.examples: list[tuple[Example, Sequence[Comparison]]] = []
        self._room = MAX_ELEMENTS

    def add(self, example: Example, seen: Sequence[Comparison]) -> None:
        """Record an example with the results of the code, if there is room."""
        # Once an example exceeds the room, no later example is recorded, so mutants are tried in bounded time.
        self._room -= sum(array.numel() for array in example.arrays.values())
        if self._room >= 0 and len(self.examples) < MAX_EXAMPLES:
            results = [replace(comparison, result=comparison.result.detach().cpu()) for comparison in seen]
            self.examples.append((example, results))


MAX_REJECTED = 20
"""Largest number of examples that `requires` may reject per requested example."""

TENSORS = " (the arguments are torch tensors; convert them with `numpy.asarray(x)` before calling NumPy)"


class NoValue(Exception):
    """The equation has no value at a point of its domain: an error of the contract."""


def attack(
    equations: Mapping[str, Mapping[str, object]],
    name: str,
    subject: object,
    device: str,
    options: Settings,
    failures: FailureClassifier,
    stream: Stream,
) -> dict[str, object]:
    """Compare the code with an equation on examples of its domain.

    Args:
        equations: The executable equations of the contract, as read from YAML.
        name: The equation to try.
        subject: The module or object under contract.
        device: The device of the arguments of the code.
        options: The number of examples, the seed, and what to replay.
        failures: Classifies exceptions of the code.
        stream: Receives counterexamples and the arguments of the current call.

    Returns:
        The record of the trial; if all examples held, with the equation mutants killed.
    """
    parsed, problems = parse_equations(equations)
    if problems:
        raise problems[0]  # lint reports these first
    return _Attack(parsed, parsed[name], subject, device, options, failures, stream).run()


@dataclass
class _Attack:
    """One trial of an equation claim, with its counts."""

    equations: Mapping[str, Definition]
    claim: Definition
    subject: object
    device: str
    options: Settings
    failures: FailureClassifier
    stream: Stream
    valid: int = 0
    invalid: int = 0
    recorded: RecordedExamples = field(default_factory=RecordedExamples)
    tolerance_check: ToleranceCheck = field(default_factory=ToleranceCheck)
    cause: str = ""
    """Cause of the first failure before shrinking: a shrunk array may be too small to show a factor or permutation."""

    def run(self) -> dict[str, object]:
        """Try the examples; return the record of the trial."""
        for example in self._examples():
            try:
                self.recorded.add(example, self._check(example))
            # Before Exception: an equation without a value is an error of the contract, not of the code.
            except NoValue as error:
                return self._final_record(TrialStatus.ERROR, str(error), example, error)
            except Exception as error:
                return self._failure_record(example, error)
            self.valid += 1
        if self.valid == 0:
            return self._final_record(TrialStatus.NO_EXAMPLES, "no example fulfils `requires`")
        # The tolerance is judged on the clean code only: a mutant may return another dtype, with another tolerance.
        if self.tolerance_check.reason and not (self.options.stop_at_first or self.options.replay):
            return self._final_record(TrialStatus.INCONCLUSIVE, self.tolerance_check.reason)
        return self._final_record(TrialStatus.HELD, "") | self._sensitivity()

    def _sensitivity(self) -> dict[str, object]:
        """Return which equation mutants the examples kill; {} on a mutant of the code, a replay or another device."""
        if self.options.stop_at_first or self.options.replay or self.device != "cpu":
            return {}
        return {"equation_mutants": try_mutants(self.claim, self.recorded)}

    def _examples(self) -> Iterator[Example]:
        """Yield the examples that `requires` admits, and count the others."""
        for example in self._candidates():
            if admits(self.claim, example):
                yield example
            else:
                self.invalid += 1

    def _candidates(self) -> Iterator[Example]:
        """Yield the example to replay, or examples of the domain until enough were valid or too many invalid."""
        if self.options.replay:
            yield self._decode_example(self.options.replay)
            return
        drawer = Drawer(self.claim.variables, self.options.seed, self.claim.accuracy.dtypes)
        while self.valid < self.options.examples and self.invalid < MAX_REJECTED * self.options.examples:
            yield drawer.example()

    def _decode_example(self, text: str) -> Example:
        """Return the example to replay from its arguments as a JSON object."""
        if not text.startswith("{"):
            raise ValueError("an equation is replayed by its exact arguments, which the JSON report has")
        variables, decoded = self.claim.variables, decode(json.loads(text))
        sizes = {name: int(decoded.pop(name)) for name in free_sizes(variables)}
        arrays = {name: _array(value, variables[name].kind) for name, value in decoded.items()}
        for name, array in arrays.items():
            sizes |= dict(zip(variables[name].axes, array.shape, strict=True))
        types = [str(v.dtype).removeprefix("torch.") for v in decoded.values() if isinstance(v, Tensor)]
        dtype = next((name for name in types if name in UNITS), "float32")
        return Example(arrays, sizes, dtype)

    def _failure_record(self, example: Example, error: Exception) -> dict[str, object]:
        """Return the record of a failure, after shrinking the example."""
        self.valid += 1
        status = self._status(error)
        if status not in (TrialStatus.REFUTED, TrialStatus.RAISED):
            return self._final_record(status, _text(error), example, error)
        self.cause = error.cause if isinstance(error, Refuted) else ""
        self.stream.put("counterexample", status=status.value, **self._counterexample(example, error))
        if self.options.stop_at_first or self.options.replay:
            return self._final_record(status, describe_error(error), example, error)
        # Prefer float32, if the example fails with it too: its numbers are printed without rounding.
        plain = replace(example, dtype="float32")
        if "float32" in self.claim.accuracy.dtypes and self._fails(plain):
            example = plain
        smallest = Shrinker(self.claim.variables, self._fails).smallest(example)
        try:
            self._check(smallest)
        except Exception as last:
            return self._final_record(self._status(last), describe_error(last), smallest, last, shrunk=True)
        return self._final_record(
            TrialStatus.FLAKY, f"the same input failed once and passed once; first failure: {describe_error(error)}"
        )

    def _fails(self, example: Example) -> bool:
        """Return whether an example of the domain refutes the claim."""
        if not admits(self.claim, example):
            return False
        try:
            self._check(example)
        except NoValue:
            return False
        except Exception as error:
            return self._status(error) in (TrialStatus.REFUTED, TrialStatus.RAISED)
        return False

    def _status(self, error: BaseException) -> TrialStatus:
        """Return the status of the trial for an error."""
        if isinstance(error, Refuted | NotComparable):
            return TrialStatus.REFUTED if isinstance(error, Refuted) else TrialStatus.ERROR
        return self.failures.status(error)

    def _check(self, example: Example) -> list[Comparison]:
        """Return the comparisons of an example. Raise `Refuted`, `NoValue`, or what the code raises."""
        values, exact = self._encode_arguments(example)
        # If the code kills the worker, the parent reports these arguments.
        self.stream.calling(values, exact=exact)
        try:
            return self._comparisons(example)
        finally:
            self.stream.returned()

    def _comparisons(self, example: Example) -> list[Comparison]:
        """Return the comparisons of an example. The equation is evaluated before the code is called."""
        limits = self._limits(example)
        # The invariants of the equation come first, since they need no code.
        for broken in broken_invariants(self.claim, example):
            raise Refuted(broken)
        observer, comparisons = Observer(self.equations, self.claim, self.subject, self.device), []
        for seen in observer.comparisons(example):
            compare(seen, limits)
            self.tolerance_check.add(seen, limits)
            comparisons.append(seen)
        for name, layout, laid_out in layouts(self.claim, example):
            self._check_layout(name, replace(observer, layout=layout), laid_out)
        return comparisons

    def _limits(self, example: Example) -> Limits:
        """Return the allowed errors around the values of the equation on an example. Raise `NoValue`."""
        equation = self.claim
        exact = exact_values(equation, example)
        if any(result.isnan().any() for result in exact):
            raise NoValue(
                f"{equation.name} has no value (NaN) here, inside its domain; exclude the point with `requires`"
            )
        return Limits(equation, example, exact)

    def _check_layout(self, name: str, observer: Observer, example: Example) -> None:
        """Raise `Refuted` if the code fails, or gives wrong values, for another memory layout of its arrays."""
        limits = self._limits(example)
        try:
            for seen in observer.by_code(example):
                compare(seen, limits)
        except Refuted as error:
            raise Refuted(f"with {name} {error}", error.cause) from error
        except Exception as error:
            if self._status(error) is not TrialStatus.RAISED:
                raise
            raise Refuted(f"with {name} the code raised {describe_error(error)}") from error

    def _encode_arguments(self, example: Example) -> tuple[dict[str, object], bool]:
        """Return the arguments of an example as JSON, with the sizes that no array has, and whether they are exact."""
        variables = self.claim.variables
        encoded = {name: encode(example.sizes[name]) for name in free_sizes(variables)}
        for name, array in example.arrays.items():
            encoded[name] = encode(as_argument(array, variables[name].kind, example.dtype, "cpu"))
        return {name: written for name, (written, _) in encoded.items()}, all(exact for _, exact in encoded.values())

    def _counterexample(self, example: Example, error: BaseException) -> dict[str, object]:
        """Return the fields of a counterexample: arguments, error, frames and call."""
        values, exact = self._encode_arguments(example)
        ours = isinstance(error, Refuted | NoValue | NotComparable)
        return {
            "arguments": values,
            "exact": exact,
            "error": _text(error) + self._hint_or_cause(error),
            "frames": [] if isinstance(error, NoValue) else self._place() if ours else self.failures.frames(error),
            "call": "" if isinstance(error, NoValue) else self._call(example),
        }

    def _hint_or_cause(self, error: BaseException) -> str:
        """Return a hint, or the cause in this example, or else the cause before shrinking."""
        if self._has_arrays() and _took_an_array(error):
            return TENSORS
        cause = error.cause if isinstance(error, Refuted) else ""
        return f"; {cause}" if cause else f"; before it was made smaller, {self.cause}" if self.cause else ""

    def _has_arrays(self) -> bool:
        return any(variable.axes for variable in self.claim.variables.values())

    def _called_equation(self) -> Definition | None:
        """Return the equation whose code is called: the claim, or the equation that it differentiates; None without."""
        if self.claim.call is not None or self.claim.derivative is None:
            return self.claim if self.claim.call is not None else None
        of = self.equations[self.claim.derivative.equation]
        return of if of.call is not None else None

    def _call(self, example: Example) -> str:
        """Return the call of the code with the values of its arguments, as text."""
        claim = self._called_equation()
        if claim is None or claim.call is None:
            return ""
        values = arguments(claim, example, "cpu")
        return claim.call.written(values, lambda value: show(encode(value)[0]))

    def _place(self) -> list[str]:
        """Return the definition of the called function, as a frame is shown."""
        claim = self._called_equation()
        place = defined_at(self.subject, claim.call.function) if claim is not None and claim.call is not None else None
        if place is None:
            return []
        file, line, name = place
        return [f"{self.failures.relative_path(file)}:{line} in {name}: {linecache.getline(file, line).strip()}"]

    def _final_record(
        self, status: TrialStatus, detail: str, example: Example | None = None, error: BaseException | None = None,
        *, shrunk: bool = False,
    ) -> dict[str, object]:  # fmt: skip
        """Return the record of the trial; with an example and its error, the record has the counterexample."""
        asked = 1 if self.options.replay else self.options.examples
        counts = {"valid": self.valid, "invalid": self.invalid, "asked": asked}
        record: dict[str, object] = {"status": status.value, "detail": detail, **counts}
        if example is not None and error is not None:
            record |= self._counterexample(example, error) | {"shrunk": shrunk}
        return record


def _text(error: BaseException) -> str:
    """Return the type and text of an error; only the text of `NotComparable`, which names the code itself."""
    return str(error) if isinstance(error, NotComparable) else describe_error(error)


def _took_an_array(error: BaseException) -> bool:
    """Return whether an error suggests that the code expected a NumPy array and got a tensor."""
    if isinstance(error, AttributeError):
        return isinstance(error.obj, Tensor)
    modules = (frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__))
    return isinstance(error, TypeError) and any(name.partition(".")[0] == "numpy" for name in modules)


def _array(value: object, kind: str) -> Tensor:
    """Return the array of an example for an argument of the code."""
    array = torch.as_tensor(value)
    return array != 0 if kind == "mask" else array.to(torch.int64 if kind == "index" else torch.float64)
