"""Try a predicate at one concrete point of its box."""

from collections.abc import Callable, Mapping

from pv.contract.harness_bounds import Point
from pv.engines.assertion import explain
from pv.engines.encoding import encode
from pv.engines.failures import FailureClassifier, describe_error
from pv.engines.stream import Stream
from pv.engines.trial import TrialStatus

Predicate = Callable[..., object]
RETURN = "return True, False or None, or assert the claim"


class Claim:
    """A predicate with its subject. A failed assertion or the result False refutes it; True and None do not."""

    def __init__(
        self, predicate: Predicate, subject: object, failures: FailureClassifier, stream: Stream | None = None
    ) -> None:
        self.predicate, self.subject, self.failures, self.stream = predicate, subject, failures, stream

    def holds(self, point: Point) -> bool:
        """Return whether the predicate holds at a point; False for an AssertionError. Other exceptions propagate."""
        try:
            return self._answer(point)
        except AssertionError:
            return False

    def failure(self, point: Point) -> dict[str, object] | None:
        """Return the record of a refutation or an error at `point`; None if the predicate holds."""
        if self.stream is not None:
            # Report the point to the parent process first, in case the call kills the worker.
            self.stream.begin_call(point)
        try:
            # Pass copies of lists: points share their lists, and the predicate may change one.
            answer = self._answer({n: list(value) if type(value) is list else value for n, value in point.items()})
        except BaseException as error:
            return self._record(point, self.failures.status(error), _describe(error), self.failures.frames(error))
        finally:
            if self.stream is not None:
                self.stream.end_call()
        return None if answer else self._record(point, TrialStatus.REFUTED, "the predicate returned False", [])

    def _answer(self, point: Point) -> bool:
        """Return whether the result of the predicate is True or None.

        Raises:
            TypeError: The result is neither a bool of Python or NumPy nor None, such as a tuple or a generator, which
                is always true.
        """
        answer = self.predicate(self.subject, **point)
        if answer is None or isinstance(answer, bool) or _is_numpy_bool(answer):
            return answer is None or bool(answer)
        raise TypeError(f"the predicate returned a value of type {type(answer).__name__}: {RETURN}")

    def _record(self, point: Point, status: TrialStatus, error: str, frames: list[str]) -> dict[str, object]:
        """Return the record of a refutation or an error at a point."""
        return {
            "status": status.value,
            "detail": error if status is not TrialStatus.REFUTED else "",
            "error": error,
            "frames": frames,
            "arguments": arguments(point),
            "exact": True,
        }


def _is_numpy_bool(answer: object) -> bool:
    return type(answer).__module__ == "numpy" and type(answer).__name__ in ("bool", "bool_")


def _describe(error: BaseException) -> str:
    explanation = explain(error)
    return f"{type(error).__name__}: {explanation}" if explanation else describe_error(error)


def arguments(point: Point) -> Mapping[str, object]:
    """Return the values of a point in JSON, by name."""
    return {name: encode(value)[0] for name, value in point.items()}
