"""Run the test of a claim on its examples, and return the record of the trial.

The test is a Hypothesis test, or a plain function, which counts as one example.
"""

import functools
import inspect
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
BETTER_EVERY_S = 0.25
"""Seconds between two counterexamples on the stream while Hypothesis shrinks."""
HIDDEN = (
    "an example failed, and the test passed: a decorator or `.xfail()` of an example hides the failure, "
    "so remove it; the failure: {}"
)
REJECTED = "the test rejects the example to replay"
OTHER = "the example to replay cannot be drawn: it was found by other strategies"
RETURNED = "the test returned a value of type {}: assert the claim, and return nothing"
MOST_SKIPS = 3
"""Number of skips after which a claim without a valid example is skipped: each skip may cost a whole run."""
_BLOB = re.compile(r"@reproduce_failure\('([^']+)', b'([^']+)'\)")
# Slow draws are ended by the time limit; a filter that rejects almost everything stays an error.
_TOLERATED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one trial.

    Attributes:
        examples: The number of examples.
        seed: The seed of the examples.
        stop_at_first: Whether the first refutation ends the trial, without shrinking, as on a mutant.
        replay: The example to replay in place of a search; "" for none.
        skips_examples: Whether a skip leaves out the example in which it is raised, not the whole claim.
    """

    examples: int
    seed: int
    stop_at_first: bool = False
    replay: str = ""
    skips_examples: bool = False


class _StopAtFirstFailure(BaseException):
    """Leaves Hypothesis at the first refutation. It is no Exception, so that no handler of the test catches it."""


def load_profile(examples: int, *, shrink: bool) -> None:
    """Load Hypothesis's settings for a falsifier. Call it before the falsifier is imported: decorators read them.

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
        suppress_health_check=_TOLERATED,
    )
    settings.load_profile(PROFILE)


def with_examples(test: Callable[..., object], examples: int) -> Callable[..., object]:
    """Return a test with this number of examples, whatever the profile was when the test was imported."""
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
        stream: Receives counterexamples at once, so that a killed worker loses little.

    Returns:
        The record of the trial: status, detail, counts, and the counterexample if there is one.
    """
    search = _Search(getattr(falsifier, "hypothesis", None), falsifier, fixed, options, failures, stream)
    try:
        search.run()
    except _StopAtFirstFailure:
        return search.end(search.first)
    except BaseException as error:
        return search.end(error)
    return search.end(None)


class _Search:
    """Runs a falsifier through Hypothesis, and counts its examples and records their arguments on the way.

    Attributes:
        valid: The number of examples that were tried.
        invalid: The number of examples that the test rejected.
        first: The error of the first refutation.
        failed: The error of the last example that failed.
        skipped: The reasons of the examples that were skipped.
        arguments: The arguments of the current example as JSON, and whether they are exact, by name.
        draws: The values that the current example has drawn from `st.data()`, likewise.
        printed: The output of the last example.
    """

    def __init__(
        self,
        handle: Any,
        falsifier: Callable[..., object],
        fixed: Mapping[str, object],
        options: Settings,
        failures: FailureClassifier,
        stream: Stream,
    ) -> None:
        self.body: Callable[..., object] = handle.inner_test if handle is not None else falsifier
        self.falsifier, self.handle, self.fixed = falsifier, handle, fixed
        self.options, self.failures, self.stream = options, failures, stream
        self.valid = self.invalid = 0
        self.first: BaseException | None = None
        self.failed: BaseException | None = None
        self.skipped: list[str] = []
        self.arguments: dict[str, tuple[object, bool]] = {}
        self.drawn_by_data = False
        self.draws: dict[str, tuple[object, bool]] = {}
        self.printed = ""
        self._last_put = 0.0

    def run(self) -> None:
        """Run the falsifier on its examples, or on the example to replay."""
        if self.handle is None:
            if self.options.replay:
                raise ValueError("the test draws no examples, so none can be replayed")
            self.run_example()
            return

        # functools.wraps keeps the name and source that Hypothesis derives its examples from.
        @functools.wraps(self.body)
        def recorded(*args: object, **arguments: object) -> None:
            self.run_example(*args, **arguments)

        # Hypothesis calls `inner_test` for each example: replacing it is the documented hook of pytest plugins.
        self.handle.inner_test = recorded
        if self.options.replay.startswith("{"):
            self.run_example(**self._arguments(self.options.replay))
            return
        if self.options.replay:
            self._reproduce(*self.options.replay.split(":", 1))
        else:
            hypothesis.seed(self.options.seed)(self.falsifier)(**self.fixed)

    def _arguments(self, replay: str) -> dict[str, object]:
        """Return the arguments of an example given as JSON. As with `@example`, strategies do not check them."""
        arguments = {**self.fixed, **{name: decode(value) for name, value in _json(replay).items()}}
        try:
            inspect.signature(self.body).bind(**arguments)
        except TypeError as error:
            raise ValueError(f"{replay[:MAX_SHOWN]} is not an example of {self.body.__name__}: {error}") from None
        return arguments

    def _reproduce(self, version: str, blob: str) -> None:
        """Replay the example of a blob. Hypothesis raises if the example does not fail."""
        try:
            hypothesis.reproduce_failure(version, blob.encode())(self.falsifier)(**self.fixed)
        except errors.DidNotReproduce:
            if not self.valid:
                raise

    def run_example(self, *args: object, **arguments: object) -> None:
        """Run the body on one example, and record its arguments and its output."""
        drawn = {name: value for name, value in arguments.items() if name not in self.fixed}
        data = [value for value in drawn.values() if isinstance(value, DataObject)]
        # Encode the arguments before the call, which may change them.
        self.arguments = {name: encode(value) for name, value in drawn.items() if not isinstance(value, DataObject)}
        self.draws, self.drawn_by_data = {}, bool(data)
        for value in data:
            self._record(value)
        self._stream_arguments()
        if self.handle is None:
            arguments = dict(self.fixed)
        with captured_output() as output:
            try:
                self._try(args, arguments)
            finally:
                self.stream.returned()
                self.printed = output.getvalue()

    def _try(self, args: tuple[object, ...], arguments: Mapping[str, object]) -> None:
        """Call the body and count the example as valid, invalid, skipped or failed."""
        try:
            returned = self.body(*args, **arguments)
            # A generator or coroutine must not pass: its body has not run.
            if returned is not None:
                raise TypeError(RETURNED.format(type(returned).__name__))
        except errors.UnsatisfiedAssumption:
            self.invalid += 1
            raise
        except BaseException as error:
            if self._is_left_out(error):
                return
            self._record_failure(error)
            raise
        self.valid += 1

    def _is_left_out(self, error: BaseException) -> bool:
        """Return whether an error skips only the current example; record its reason.

        False for an error that is no skip, and once `MOST_SKIPS` examples were skipped and none was valid.
        """
        drawn = self.options.skips_examples and self.handle is not None and not self.options.replay
        if not drawn or self.failures.status(error) is not TrialStatus.SKIPPED:
            return False
        self.skipped.append(describe_error(error))
        return bool(self.valid) or len(self.skipped) < MOST_SKIPS

    def _record(self, data: DataObject) -> None:
        """Record what an example draws from `data` by the label of the draw, or its number."""
        draw = data.draw

        def recorded(strategy: SearchStrategy[Drawn], label: object = None) -> Drawn:
            value = draw(strategy, label)
            name = f"draw {len(self.draws) + 1}" if label is None else str(label)
            self.draws[f"{name} ({len(self.draws) + 1})" if name in self.draws else name] = encode(value)
            self._stream_arguments()
            return value

        data.draw = recorded  # type: ignore[method-assign]  # no hook for draws exists; every example has new `data`

    def _stream_arguments(self) -> None:
        """Write the current arguments to the stream."""
        values, exact = self._encode_arguments()
        self.stream.calling(values, exact=exact)

    def _encode_arguments(self) -> tuple[dict[str, object], bool]:
        """Return the arguments as JSON, and whether they can be replayed: values drawn from `st.data()` cannot."""
        pairs = {**self.arguments, **self.draws}
        exact = not self.drawn_by_data and all(exact for _, exact in pairs.values())
        return {name: value for name, (value, _) in pairs.items()}, exact

    def _record_failure(self, error: BaseException) -> None:
        """Record a failure, and put the counterexample on the stream."""
        if isinstance(error, errors.StopTest | errors.Frozen):
            return  # Hypothesis's own control flow
        status = self.failures.status(error)
        if status not in (TrialStatus.SKIPPED, TrialStatus.NOT_CLAIMED):
            self.failed = error
        if status not in (TrialStatus.REFUTED, TrialStatus.RAISED):
            return
        now = time.monotonic()
        if self.first is None or now - self._last_put > BETTER_EVERY_S:
            # A test fails hundreds of times while Hypothesis shrinks, so write at most four records a second.
            self._last_put = now
            self.stream.put("counterexample", status=status.value, **self.counterexample(error))
        if self.first is None:
            self.first = error
            self.valid += 1
            if self.options.stop_at_first:
                raise _StopAtFirstFailure

    def counterexample(self, error: BaseException, explanation: str = "") -> dict[str, object]:
        """Return the last arguments, as they were before the call, with the error."""
        values, exact = self._encode_arguments()
        return {
            "arguments": values,
            "exact": exact,
            "error": f"{type(error).__name__}: {explanation}" if explanation else describe_error(error),
            "frames": self.failures.frames(error),
            "printed": self.printed,
            "explained": isinstance(error, KnownCause),
        }

    def end(self, error: BaseException | None) -> dict[str, object]:
        """Return the record of the trial; `error` is the exception that ended it, if any."""
        # A plain function and a replay have one example.
        asked = self.options.examples if self.handle is not None and not self.options.replay else 1
        counts = {"valid": self.valid, "invalid": self.invalid, "asked": asked}
        if error is None and self.failed is not None:
            return {"status": TrialStatus.ERROR.value, "detail": HIDDEN.format(describe_error(self.failed)), **counts}
        if error is None and self.skipped:
            return self._status_with_skips() | counts
        if error is None:
            status = TrialStatus.HELD if self.valid else TrialStatus.NO_EXAMPLES
            return {"status": status.value, "detail": "" if self.valid else "no example was valid", **counts}
        status, detail = self._classify(error)
        record: dict[str, object] = {"status": status.value, "detail": detail, **counts}
        if status in (TrialStatus.REFUTED, TrialStatus.RAISED, TrialStatus.ERROR):
            # The values are not reported for a mutant, and evaluating them again costs time.
            record |= self.counterexample(error, "" if self.options.stop_at_first else _explanation(error))
            record |= {"shrunk": not self.options.stop_at_first, "blob": _blob(error)}
        return record | {"hypothesis": hypothesis.__version__}

    def _status_with_skips(self) -> dict[str, object]:
        """Return the status and the detail of a search in which some examples were skipped and none failed."""
        (reason, _), *other_reasons = Counter(self.skipped).most_common()
        if not self.valid:
            return {"status": TrialStatus.SKIPPED.value, "detail": reason}
        rest = f" (and {count(len(other_reasons), 'other reason')})" if other_reasons else ""
        total = self.valid + len(self.skipped)
        detail = f"{len(self.skipped)} of {total} drawn examples were skipped: {reason}{rest}"
        return {"status": TrialStatus.HELD.value, "detail": detail}

    def _classify(self, error: BaseException) -> tuple[TrialStatus, str]:
        """Return the status and the detail of a trial that ended with an error."""
        # Hypothesis runs a failing example again; `Flaky` means that it passed the second time.
        if isinstance(error, errors.Flaky):
            first = f"; first failure: {describe_error(self.first)}" if self.first else ""
            return TrialStatus.FLAKY, f"the same input failed once and passed once{first}"
        if isinstance(error, errors.Unsatisfiable):
            return TrialStatus.NO_EXAMPLES, str(error)
        if isinstance(error, errors.FailedHealthCheck):
            # If most examples were rejected, the health check for rejections failed; others are errors of the test.
            rejected = self.valid < self.invalid
            return (TrialStatus.NO_EXAMPLES if rejected else TrialStatus.ERROR), str(error).splitlines()[0]
        if isinstance(error, errors.DidNotReproduce):
            return (TrialStatus.NO_EXAMPLES, REJECTED) if self.invalid else (TrialStatus.ERROR, OTHER)
        if isinstance(error, errors.UnsatisfiedAssumption):
            return TrialStatus.NO_EXAMPLES, REJECTED
        return self.failures.status(error), describe_error(error)


def _explanation(error: BaseException) -> str:
    """Return the values of a failed assert, or the text of an error and how its arrays differ; "" if unknown."""
    cause = cause_of(error)
    return f"{error}\n{cause}" if cause else explain(error)


def _blob(error: BaseException) -> str:
    """Return the blob that replays an error; "" if there is none. Hypothesis gives the blob only in a note's text."""
    match_ = _BLOB.search("\n".join(getattr(error, "__notes__", ())))
    return match_[2] if match_ else ""


def _json(text: str) -> dict[str, object]:
    import json

    parsed: dict[str, object] = json.loads(text)
    return parsed
