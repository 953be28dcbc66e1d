"""Try an equation claim: draw examples of its domain, and compare the code under contract with the equation.

On every example

1. the invariants of the equation are checked;
2. the equation is compared with the code that implements it;
3. an equation that is declared as the derivative of another one is compared with the derivative of the other equation,
   and with the gradient of the other equation's code, both by automatic differentiation;
4. the code is compared with the equation again for other memory layouts of its arrays.

If all examples held, mutants of the equation are compared with the recorded results of the code: a killed mutant shows
that the attack detects a wrong equation. Mutants are tried only on the CPU, not in a replay, and not if the code itself
has a mutant.
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
from pv.equations.domain import Kind, free_sizes
from pv.equations.evaluate import admits, exact_values
from pv.equations.examples import Drawer, Example, Shrinker
from pv.equations.invariants import broken_invariants
from pv.equations.mutants import MutatedEquation, mutants
from pv.equations.parse import UNITS, Definition, parse_equations
from pv.equations.tolerance import SLACK, Limits

MAX_EXAMPLES = 200
MAX_ELEMENTS = 2**20
"""Largest total number of elements of the recorded examples. It limits memory and, for each mutant, time."""


def try_mutants(claim: Definition, recorded: "RecordedExamples") -> dict[str, object]:
    """Try the mutants of an equation on recorded results; return their number, the number killed, and the survivors."""
    survivors, total = [], 0
    for mutant in mutants_of(claim):
        total += 1
        mutated = equation_with(claim, mutant)
        if not any(kills(mutated, example, comparisons) for example, comparisons in recorded.examples):
            survivors.append({key: getattr(mutant, key) for key in ("equation", "line", "column", "before", "after")})
    return {"total": total, "killed": total - len(survivors), "survivors": survivors}


def mutants_of(claim: Definition) -> Iterator[MutatedEquation]:
    """Yield the mutants of a claim's equation and of the equations that it calls."""
    return mutants(claim.name, claim.callees, claim.results)


def equation_with(equation: Definition, mutant: MutatedEquation) -> Definition:
    """Return an equation with a mutant in it."""
    return replace(equation, formula=mutant.callees[equation.name].formula, callees=mutant.callees)


def kills(mutated: Definition, example: Example, comparisons: Sequence[Comparison]) -> bool:
    """Return whether an example kills a mutated equation: a result of the code differs from it by more than allowed.

    Args:
        mutated: The mutated equation.
        example: The example.
        comparisons: The results of the code on the example.
    """
    try:
        values = exact_values(mutated, example)
        # The original equation has a value on every recorded example, so NaN kills the mutant.
        if any(value.isnan().any() for value in values):
            return True
        limits = Limits(mutated, example, values)
        return any(_differs_from_equation(comparison, limits) for comparison in comparisons)
    except Exception:  # a mutant that cannot be evaluated is killed
        return True


def _differs_from_equation(comparison: Comparison, limits: Limits) -> bool:
    """Return whether a recorded result differs from the mutated equation by more than allowed."""
    value = limits.values[comparison.index]
    if comparison.result.shape != value.shape:
        return True
    difference = comparison.difference(value)
    # Compare with a lower bound of the limit first, since computing the limit takes eight more evaluations. If the
    # result is the derivative of another equation, it is computed in float64, not by the code: the lower bound is 0.
    unit_roundoff = limits.unit_roundoff(comparison.result.dtype) if comparison.is_from_code else 0.0
    lower_bound = SLACK * unit_roundoff * value.abs().nan_to_num(posinf=0.0)
    if limits.equation.accuracy.tolerance is None and not (difference > lower_bound).any():
        return False
    return bool((difference > comparison.limit(limits)).any())


class RecordedExamples:
    """The first examples on which the equation held, with the results of the code.

    At most `MAX_EXAMPLES` examples with at most `MAX_ELEMENTS` elements are recorded.
    """

    def __init__(self) -> None:
        self.examples: list[tuple[Example, Sequence[Comparison]]] = []
        self._elements = 0

    def add(self, example: Example, comparisons: Sequence[Comparison]) -> None:
        """Record an example with the results of the code, up to `MAX_EXAMPLES` and `MAX_ELEMENTS`."""
        self._elements += sum(array.numel() for array in example.arrays.values())
        if self._elements <= MAX_ELEMENTS and len(self.examples) < MAX_EXAMPLES:
            results = [replace(comparison, result=comparison.result.detach().cpu()) for comparison in comparisons]
            self.examples.append((example, results))


MAX_REJECTED = 20
"""Largest number of examples that `requires` may reject per requested example."""

ARRAY_HINT = " (the arguments are torch tensors; convert them with `numpy.asarray(x)` before calling NumPy)"


class NoValue(Exception):
    """The equation is NaN at a point of its domain: an error of the contract, not of the code."""


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
        The record of the trial. If all examples held on the CPU, and the trial is neither a replay nor on a mutant of
        the code, `equation_mutants` has the numbers of tried and killed equation mutants, and the survivors.
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
    """Cause of the first failure, such as `twice the expected value`, found before shrinking: one number does not show
    whether a factor or the order of axes is wrong."""

    def run(self) -> dict[str, object]:
        """Try the examples; return the record of the trial."""
        for example in self._examples():
            try:
                self.recorded.add(example, self._check(example))
            except NoValue as error:
                return self._final_record(TrialStatus.ERROR, str(error), example, error)
            except Exception as error:
                return self._failure_record(example, error)
            self.valid += 1
        if self.valid == 0:
            return self._final_record(TrialStatus.NO_EXAMPLES, "no example fulfils `requires`")
        # The tolerance is checked for the original code only: a mutant may return another dtype with another tolerance.
        if self._is_full_search and self.tolerance_check.reason:
            return self._final_record(TrialStatus.INCONCLUSIVE, self.tolerance_check.reason)
        record = self._final_record(TrialStatus.HELD, "")
        if self._is_full_search and self.device == "cpu":
            record["equation_mutants"] = try_mutants(self.claim, self.recorded)
        return record

    @property
    def _is_full_search(self) -> bool:
        """Return whether the trial is neither a replay nor a trial of a mutant of the code."""
        # Only trials of mutants stop at the first failure.
        return not (self.options.stop_at_first or self.options.replay)

    def _examples(self) -> Iterator[Example]:
        """Yield the examples that `requires` admits, and count the others."""
        for example in self._candidates():
            if admits(self.claim, example):
                yield example
            else:
                self.invalid += 1

    def _candidates(self) -> Iterator[Example]:
        """Yield the example to replay, or examples of the domain until enough are valid or too many are invalid."""
        if self.options.replay:
            yield self._decode_example(self.options.replay)
            return
        drawer = Drawer(self.claim.variables, self.options.seed, self.claim.accuracy.dtypes)
        while self.valid < self.options.examples and self.invalid < MAX_REJECTED * self.options.examples:
            yield drawer.example()

    def _decode_example(self, text: str) -> Example:
        """Return the example to replay from its arguments as a JSON object."""
        if not text.startswith("{"):
            raise ValueError("invalid example: expected a JSON object; copy `arguments` from the JSON report")
        variables, decoded = self.claim.variables, decode(json.loads(text))
        sizes = {name: int(decoded.pop(name)) for name in free_sizes(variables)}
        arrays = {name: _array(value, variables[name].kind) for name, value in decoded.items()}
        for name, array in arrays.items():
            sizes |= dict(zip(variables[name].axes, array.shape, strict=True))
        types = [str(v.dtype).removeprefix("torch.") for v in decoded.values() if isinstance(v, Tensor)]
        dtype = next((name for name in types if name in UNITS), "float32")
        return Example(arrays, sizes, dtype)

    def _failure_record(self, example: Example, error: Exception) -> dict[str, object]:
        """Return the record of a failure; in a full search that refutes the claim, shrink the example first."""
        self.valid += 1
        status = self._status(error)
        if status not in (TrialStatus.REFUTED, TrialStatus.RAISED):
            return self._final_record(status, _text(error), example, error)
        self.cause = error.cause if isinstance(error, Refuted) else ""
        self.stream.put("counterexample", status=status.value, **self._counterexample(example, error))
        if not self._is_full_search:
            return self._final_record(status, describe_error(error), example, error)
        # Prefer float32 if the example fails with it too: it is the dtype that a reader tries first.
        in_float32 = replace(example, dtype="float32")
        if "float32" in self.claim.accuracy.dtypes and self._fails(in_float32):
            example = in_float32
        smallest = Shrinker(self.claim.variables, self._fails).smallest(example)
        try:
            self._check(smallest)
        except Exception as final:
            return self._final_record(self._status(final), describe_error(final), smallest, final, shrunk=True)
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
        if isinstance(error, Refuted):
            return TrialStatus.REFUTED
        if isinstance(error, NotComparable):
            return TrialStatus.ERROR
        return self.failures.status(error)

    def _check(self, example: Example) -> list[Comparison]:
        """Return the comparisons of an example.

        Raise `Refuted`, `NoValue`, `NotComparable`, or what the code raises.
        """
        values, exact = self._encode_arguments(example)
        # If the code kills the worker, the parent reports these arguments.
        self.stream.begin_call(values, exact=exact)
        try:
            return self._comparisons(example)
        finally:
            self.stream.end_call()

    def _comparisons(self, example: Example) -> list[Comparison]:
        """Return the comparisons of an example. Raise as `_check`."""
        # Evaluate the equation and its invariants before the code is called: their errors do not depend on the code.
        limits = self._limits(example)
        broken_invariant = next(broken_invariants(self.claim, example), None)
        if broken_invariant is not None:
            raise Refuted(broken_invariant)
        observer = Observer(self.equations, self.claim, self.subject, self.device)
        comparisons = []
        for comparison in observer.comparisons(example):
            compare(comparison, limits)
            self.tolerance_check.add(comparison, limits)
            comparisons.append(comparison)
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
            for comparison in observer.results_of_code(example):
                compare(comparison, limits)
        except Refuted as error:
            raise Refuted(f"with {name} {error}", error.cause) from error
        except Exception as error:
            if self._status(error) is not TrialStatus.RAISED:
                raise
            raise Refuted(f"with {name} the code raised {describe_error(error)}") from error

    def _encode_arguments(self, example: Example) -> tuple[dict[str, object], bool]:
        """Return the arguments and free sizes of an example as JSON, and whether the encoding is exact."""
        variables = self.claim.variables
        encoded = {name: encode(example.sizes[name]) for name in free_sizes(variables)}
        for name, array in example.arrays.items():
            encoded[name] = encode(as_argument(array, variables[name].kind, example.dtype, "cpu"))
        return {name: value for name, (value, _) in encoded.items()}, all(exact for _, exact in encoded.values())

    def _counterexample(self, example: Example, error: BaseException) -> dict[str, object]:
        """Return the fields of a counterexample: arguments, error, frames and call."""
        values, exact = self._encode_arguments(example)
        frames: list[str] = []
        if isinstance(error, Refuted | NotComparable):
            # The traceback has frames of pv only, so show the definition of the function instead.
            frames = self._definition_frame()
        elif not isinstance(error, NoValue):
            frames = self.failures.frames(error)
        return {
            "arguments": values,
            "exact": exact,
            "error": _text(error) + self._hint_or_cause(error),
            "frames": frames,
            "call": "" if isinstance(error, NoValue) else self._call(example),
        }

    def _hint_or_cause(self, error: BaseException) -> str:
        """Return a hint, the cause in this example, or the cause before shrinking; "" if none is known."""
        if _expected_numpy(error) and any(variable.axes for variable in self.claim.variables.values()):
            return ARRAY_HINT
        if isinstance(error, Refuted) and error.cause:
            return f"; {error.cause}"
        return f"; before shrinking, {self.cause}" if self.cause else ""

    def _called_equation(self) -> Definition:
        """Return the equation whose code is called: for a claim about a derivative, the differentiated one."""
        if self.claim.call is None and self.claim.derivative is not None:
            return self.equations[self.claim.derivative.equation]
        return self.claim

    def _call(self, example: Example) -> str:
        """Return the call of the code with the values of its arguments, as text; "" if the equation has no code."""
        equation = self._called_equation()
        if equation.call is None:
            return ""
        values = arguments(equation, example, "cpu")
        return equation.call.format(values, lambda value: show(encode(value)[0]))

    def _definition_frame(self) -> list[str]:
        """Return the definition of the called function in the format of a traceback frame; [] if it is unknown."""
        call = self._called_equation().call
        definition = defined_at(self.subject, call.function) if call is not None else None
        if definition is None:
            return []
        file, line, name = definition
        return [f"{self.failures.relative_path(file)}:{line} in {name}: {linecache.getline(file, line).strip()}"]

    def _final_record(
        self, status: TrialStatus, detail: str, example: Example | None = None, error: BaseException | None = None,
        *, shrunk: bool = False,
    ) -> dict[str, object]:  # fmt: skip
        """Return the record of the trial, with the counterexample if an example and its error are given."""
        asked = 1 if self.options.replay else self.options.examples
        counts = {"valid": self.valid, "invalid": self.invalid, "asked": asked}
        record: dict[str, object] = {"status": status.value, "detail": detail, **counts}
        if example is not None and error is not None:
            record |= self._counterexample(example, error) | {"shrunk": shrunk}
        return record


def _text(error: BaseException) -> str:
    """Return the type and text of an error; for `NotComparable` only the text, which names the function."""
    return str(error) if isinstance(error, NotComparable) else describe_error(error)


def _expected_numpy(error: BaseException) -> bool:
    """Return whether an error suggests that the code expected a NumPy array instead of a tensor."""
    if isinstance(error, AttributeError):
        return isinstance(error.obj, Tensor)
    modules = (frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__))
    return isinstance(error, TypeError) and any(name.partition(".")[0] == "numpy" for name in modules)


def _array(value: object, kind: Kind) -> Tensor:
    """Return the array of an example from an argument of the code, as the inverse of `as_argument`."""
    array = torch.as_tensor(value)
    if kind == Kind.MASK:
        return array != 0
    return array.to(torch.int64 if kind == Kind.INDEX else torch.float64)
