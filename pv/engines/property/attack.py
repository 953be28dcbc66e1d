"""Run the test of a claim on its examples, and return the record of the trial.

The test is a Hypothesis test, or a plain function that is called once and counts as one example.
"""

import functools
import inspect
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import StringIO
from typing import Any, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, errors, settings
from hypothesis.strategies import DataObject, SearchStrategy

from pv.contract.wording import count
from pv.engines.assertion import cause_of, explain
from pv.engines.encoding import decode, encode
from pv.engines.failures import FailureClassifier, describe_error
from pv.engines.printing import captured_output
from pv.engines.replay import MAX_SHOWN
from pv.engines.stream import Stream
from pv.engines.trial import TrialStatus
from pv.errors import KnownCause

Drawn = TypeVar("Drawn")
PROFILE = "pv"
COUNTEREXAMPLE_INTERVAL_S = 0.25
"""Smallest time between two counterexamples on the stream: while Hypothesis shrinks, a test fails hundreds of times."""
HIDDEN = (
    "an example failed, but the test passed: remove the decorator or the `.xfail()` of an example that hides the "
    "failure; the failure is {}"
)
REJECTED = "the test rejects the example to replay"
OTHER = "the strategies of the test cannot draw the example to replay: it was found with other strategies"
RETURNED = "the test returned a value of type {}: assert the claim, and return nothing"
MOST_SKIPS = 3
"""Number of skipped examples after which the trial ends if no example was valid: an example may be a whole run."""
_BLOB = re.compile(r"@reproduce_failure\('([^']+)', b'([^']+)'\)")
# The trial has its own time limit for slow draws. The health check for filters that reject almost everything stays on.
_SUPPRESSED_CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one trial.

    Attributes:
        examples: The number of examples.
        seed: The seed of the examples.
        stop_at_first: Whether the first refutation ends the trial, without shrinking, as on a mutant.
        replay: The example to replay in place of a search; "" for none.
        skips_examples: Whether an exception that skips a test ends only the current example, not the whole trial.
    """

    examples: int
    seed: int
    stop_at_first: bool = False
    replay: str = ""
    skips_examples: bool = False


class _StopAtFirstFailure(BaseException):
    """Ends the Hypothesis test at the first refutation. A BaseException, which `except Exception` does not catch."""


def load_profile(examples: int, *, shrink: bool) -> None:
    """Load Hypothesis's settings for a falsifier. Call this before the falsifier is imported.

    Args:
        examples: The number of examples.
        shrink: Whether to shrink counterexamples.
    """
    phases = [Phase.explicit, Phase.generate, Phase.target, *([Phase.shrink] if shrink else [])]
    settings.register_profile(
        PROFILE,
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        print_blob=True,
        report_multiple_bugs=False,
        phases=phases,
        suppress_health_check=_SUPPRESSED_CHECKS,
    )
    settings.load_profile(PROFILE)


def with_examples(test: Callable[..., object], examples: int) -> Callable[..., object]:
    """Return a test with this number of examples, instead of the number in the profile when the test was imported."""
    return settings(max_examples=examples)(test) if hasattr(test, "hypothesis") else test


def attack(
    falsifier: Callable[..., object],
    fixed: Mapping[str, object],
    options: Settings,
    failures: FailureClassifier,
    stream: Stream,
) -> dict[str, object]:
    """Run a falsifier on its examples.

    Args:
        falsifier: The test, decorated by Hypothesis or plain.
        fixed: The arguments that are the same for every example, such as the subject.
        options: The number of examples, the seed, and what to replay.
        failures: Classifies what the test raises.
        stream: Receives counterexamples as soon as they are found, so that they survive a killed worker.

    Returns:
        The record of the trial: status, detail, counts, and the counterexample if there is one.
    """
    search = _Search(falsifier, fixed, options, failures, stream)
    try:
        search.run()
    except _StopAtFirstFailure:
        return search.end(search.first)
    except BaseException as error:
        return search.end(error)
    return search.end(None)


class _Search:
    """Runs a falsifier, counts its examples and records their arguments.

    Attributes:
        handle: Hypothesis's handle of the test, through which the body can be replaced; None for a plain function.
        body: The function that runs one example.
        valid: The number of examples that passed, plus 1 if an example refuted the claim.
        invalid: The number of examples that the test rejected.
        first: The error of the first refutation.
        failed: The error of the last example that failed.
        skipped: The reasons of the examples that were skipped.
        arguments: The JSON of each argument of the current example by name, and whether this JSON is exact.
        draws: The values that the current example drew from `st.data()` by label, in the same form.
        drawn_by_data: Whether the current example has an argument `st.data()`.
        output: The buffer with the output of the current example.
    """

    def __init__(
        self,
        falsifier: Callable[..., object],
        fixed: Mapping[str, object],
        options: Settings,
        failures: FailureClassifier,
        stream: Stream,
    ) -> None:
        self.handle: Any = getattr(falsifier, "hypothesis", None)
        self.body: Callable[..., object] = self.handle.inner_test if self.handle is not None else falsifier
        self.falsifier, self.fixed = falsifier, fixed
        self.options, self.failures, self.stream = options, failures, stream
        self.valid = self.invalid = 0
        self.first: BaseException | None = None
        self.failed: BaseException | None = None
        self.skipped: list[str] = []
        self.arguments: dict[str, tuple[object, bool]] = {}
        self.drawn_by_data = False
        self.draws: dict[str, tuple[object, bool]] = {}
        self.output = StringIO()
        self._last_put = 0.0

    def run(self) -> None:
        """Run the falsifier on its examples, or on the example to replay."""
        if self.handle is None:
            if self.options.replay:
                raise ValueError("the test draws no examples, so none can be replayed")
            self.run_example(**self.fixed)
            return

        # Hypothesis derives examples from the name and source of a test, which functools.wraps keeps.
        @functools.wraps(self.body)
        def recorded(*args: object, **arguments: object) -> None:
            self.run_example(*args, **arguments)

        # Hypothesis calls `inner_test` for each example. Its documentation lets pytest plugins replace this function.
        self.handle.inner_test = recorded
        if self.options.replay.startswith("{"):
            self.run_example(**self._arguments(self.options.replay))
        elif self.options.replay:
            self._reproduce(*self.options.replay.split(":", 1))
        else:
            hypothesis.seed(self.options.seed)(self.falsifier)(**self.fixed)

    def _arguments(self, replay: str) -> dict[str, object]:
        """Return the arguments of a JSON example. As with `@example`, strategies do not check them."""
        arguments = {**self.fixed, **{name: decode(value) for name, value in json.loads(replay).items()}}
        try:
            inspect.signature(self.body).bind(**arguments)
        except TypeError as error:
            raise ValueError(f"{replay[:MAX_SHOWN]} is not an example of {self.body.__name__}: {error}") from None
        return arguments

    def _reproduce(self, version: str, blob: str) -> None:
        """Replay the example that Hypothesis encoded as a blob."""
        try:
            hypothesis.reproduce_failure(version, blob.encode())(self.falsifier)(**self.fixed)
        except errors.DidNotReproduce:
            # Hypothesis also raises `DidNotReproduce` if the example ran and passed. That is not an error.
            if not self.valid:
                raise

    def run_example(self, *args: object, **arguments: object) -> None:
        """Run the body on one example; record the arguments and the output of the example."""
        drawn = {name: value for name, value in arguments.items() if name not in self.fixed}
        data = [value for value in drawn.values() if isinstance(value, DataObject)]
        # Encode the arguments before the call, since the body may change them.
        self.arguments = {name: encode(value) for name, value in drawn.items() if not isinstance(value, DataObject)}
        self.draws, self.drawn_by_data = {}, bool(data)
        for value in data:
            self._record_draws(value)
        self._stream_arguments()
        with captured_output() as self.output:
            try:
                self._call_body(args, arguments)
            finally:
                self.stream.end_call()

    def _call_body(self, args: tuple[object, ...], arguments: Mapping[str, object]) -> None:
        """Call the body and count the example as valid, invalid, skipped or failed."""
        try:
            returned = self.body(*args, **arguments)
            # The test must not return a value. A returned generator or coroutine has not run at all.
            if returned is not None:
                raise TypeError(RETURNED.format(type(returned).__name__))
        except errors.UnsatisfiedAssumption:
            self.invalid += 1
            raise
        except BaseException as error:
            if self._skip_example(error):
                return
            self._record_failure(error)
            raise
        self.valid += 1

    def _skip_example(self, error: BaseException) -> bool:
        """If an error skips an example of a search, record the reason and return whether the search continues."""
        is_search = self.handle is not None and not self.options.replay
        if not (self.options.skips_examples and is_search) or self.failures.status(error) is not TrialStatus.SKIPPED:
            return False
        self.skipped.append(describe_error(error))
        return bool(self.valid) or len(self.skipped) < MOST_SKIPS

    def _record_draws(self, data: DataObject) -> None:
        """Make `data` record the values that an example draws, by label or number."""
        draw = data.draw

        def recorded(strategy: SearchStrategy[Drawn], label: object = None) -> Drawn:
            value = draw(strategy, label)
            number = len(self.draws) + 1
            name = f"draw {number}" if label is None else str(label)
            if name in self.draws:
                name = f"{name} ({number})"
            self.draws[name] = encode(value)
            self._stream_arguments()
            return value

        data.draw = recorded  # type: ignore[method-assign]  # no hook for draws exists; every example has new `data`

    def _stream_arguments(self) -> None:
        """Write the current arguments to the stream."""
        values, exact = self._encode_arguments()
        self.stream.begin_call(values, exact=exact)

    def _encode_arguments(self) -> tuple[dict[str, object], bool]:
        """Return the arguments as JSON, and whether they can be replayed: never if the example has `st.data()`."""
        encoded = self.arguments | self.draws
        exact = not self.drawn_by_data and all(exact for _, exact in encoded.values())
        return {name: value for name, (value, _) in encoded.items()}, exact

    def _record_failure(self, error: BaseException) -> None:
        """Record a failure. If it refutes the claim, put a counterexample on the stream; on a mutant, end the search.

        Of counterexamples within `COUNTEREXAMPLE_INTERVAL_S`, only the first is put on the stream.
        """
        if isinstance(error, errors.StopTest | errors.Frozen):
            return  # Hypothesis raises these to control the search
        status = self.failures.status(error)
        if status not in (TrialStatus.SKIPPED, TrialStatus.NOT_CLAIMED):
            self.failed = error
        if status not in (TrialStatus.REFUTED, TrialStatus.RAISED):
            return
        now = time.monotonic()
        if self.first is None or now - self._last_put > COUNTEREXAMPLE_INTERVAL_S:
            self._last_put = now
            self.stream.put("counterexample", status=status.value, **self.counterexample(error))
        if self.first is None:
            self.first = error
            self.valid += 1
            if self.options.stop_at_first:
                raise _StopAtFirstFailure

    def counterexample(self, error: BaseException, explanation: str = "") -> dict[str, object]:
        """Return the arguments of the current example, as they were before the call, with the error."""
        values, exact = self._encode_arguments()
        return {
            "arguments": values,
            "exact": exact,
            "error": f"{type(error).__name__}: {explanation}" if explanation else describe_error(error),
            "frames": self.failures.frames(error),
            "printed": self.output.getvalue(),
            "explained": isinstance(error, KnownCause),
        }

    def end(self, error: BaseException | None) -> dict[str, object]:
        """Return the record of the trial; `error` is the exception that ended it, if any."""
        # A plain function and a replay have one example.
        asked = self.options.examples if self.handle is not None and not self.options.replay else 1
        counts = {"valid": self.valid, "invalid": self.invalid, "asked": asked}
        status, detail = self._classify(error) if error is not None else self._status_without_error()
        record: dict[str, object] = {"status": status.value, "detail": detail, **counts}
        if error is None:
            return record
        if status in (TrialStatus.REFUTED, TrialStatus.RAISED, TrialStatus.ERROR):
            # A mutant needs no explanation, which evaluates the values of the failed assert again.
            record |= self.counterexample(error, "" if self.options.stop_at_first else _explanation(error))
            record |= {"shrunk": not self.options.stop_at_first, "blob": _blob(error)}
        return record | {"hypothesis": hypothesis.__version__}

    def _status_without_error(self) -> tuple[TrialStatus, str]:
        """Return the status and the detail of a trial that ended without an error."""
        if self.failed is not None:
            return TrialStatus.ERROR, HIDDEN.format(describe_error(self.failed))
        if not self.skipped:
            return (TrialStatus.HELD, "") if self.valid else (TrialStatus.NO_EXAMPLES, "no example was valid")
        (reason, _), *other_reasons = Counter(self.skipped).most_common()
        if not self.valid:
            return TrialStatus.SKIPPED, reason
        rest = f" (and {count(len(other_reasons), 'other reason')})" if other_reasons else ""
        total = self.valid + len(self.skipped)
        return TrialStatus.HELD, f"{len(self.skipped)} of {total} drawn examples were skipped: {reason}{rest}"

    def _classify(self, error: BaseException) -> tuple[TrialStatus, str]:
        """Return the status and the detail of a trial that ended with an error."""
        # Hypothesis runs a failing example again; `Flaky` means that it passed the second time.
        if isinstance(error, errors.Flaky):
            first = f"; first failure: {describe_error(self.first)}" if self.first else ""
            return TrialStatus.FLAKY, f"the same input failed once and passed once{first}"
        if isinstance(error, errors.Unsatisfiable):
            return TrialStatus.NO_EXAMPLES, str(error)
        if isinstance(error, errors.FailedHealthCheck):
            # If most examples were rejected, this is the health check for filters that reject too much.
            status = TrialStatus.NO_EXAMPLES if self.invalid > self.valid else TrialStatus.ERROR
            return status, str(error).splitlines()[0]
        if isinstance(error, errors.DidNotReproduce):
            return (TrialStatus.NO_EXAMPLES, REJECTED) if self.invalid else (TrialStatus.ERROR, OTHER)
        if isinstance(error, errors.UnsatisfiedAssumption):
            return TrialStatus.NO_EXAMPLES, REJECTED
        return self.failures.status(error), describe_error(error)


def _explanation(error: BaseException) -> str:
    """Explain an error: the values of a failed `assert`, or how the arrays of `assert_close` differ; "" if unknown."""
    cause = cause_of(error)
    return f"{error}\n{cause}" if cause else explain(error)


def _blob(error: BaseException) -> str:
    """Return the blob that replays an error, which Hypothesis adds to the notes of the error; "" if there is none."""
    match_ = _BLOB.search("\n".join(getattr(error, "__notes__", ())))
    return match_[2] if match_ else ""
