"""Tries a predicate at one concrete point of its box."""

from collections.abc import Callable, Mapping
from typing import Any

from pv.contract.bounds import Point
from pv.engines.assertion import explained
from pv.engines.blame import Blame, said
from pv.engines.encoding import encode
from pv.engines.trial import TrialStatus

Predicate = Callable[..., object]


class Claim:
    """A predicate with its subject. A failed assertion or a result that is not true refutes it."""

    def __init__(self, predicate: Predicate, subject: Any, blame: Blame) -> None:
        self.predicate, self.subject, self.blame = predicate, subject, blame

    def holds(self, point: Point) -> bool:
        """Return whether it holds at `point`. Raise what it raises, but for an AssertionError."""
        try:
            answer = self.predicate(self.subject, **point)
        except AssertionError:
            return False
        return answer is None or bool(answer)

    def refutation(self, point: Point) -> dict[str, Any] | None:
        """Return the record of its refutation at `point`; None if it holds."""
        try:
            answer = self.predicate(self.subject, **point)
        except BaseException as error:
            return self._record(point, self.blame.status(error), _text(error), self.blame.frames(error))
        if answer is None or answer:
            return None
        return self._record(point, TrialStatus.REFUTED, f"the predicate answered {answer!r}"[:4000], [])

    def _record(self, point: Point, status: TrialStatus, error: str, frames: list[str]) -> dict[str, Any]:
        return {
            "status": status.value,
            "detail": error if status is not TrialStatus.REFUTED else "",
            "error": error,
            "frames": frames,
            "arguments": arguments(point),
            "exact": True,
        }


def _text(error: BaseException) -> str:
    explanation = explained(error)
    return f"{type(error).__name__}: {explanation}" if explanation else said(error)


def arguments(point: Point) -> Mapping[str, Any]:
    return {name: encode(value)[0] for name, value in point.items()}
