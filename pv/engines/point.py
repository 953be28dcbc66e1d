"""One point of a harness's box, tried concretely."""

from collections.abc import Callable, Mapping
from typing import Any

from pv.bounds import Point
from pv.engines.blame import Blame, said
from pv.engines.encoding import encode
from pv.evidence import Ending

Predicate = Callable[..., object]


class Claim:
    """A predicate with its subject. An assertion that fails refutes it, and so does an answer that is not true."""

    def __init__(self, predicate: Predicate, subject: Any, blame: Blame) -> None:
        self.predicate, self.subject, self.blame = predicate, subject, blame

    def holds(self, point: Point) -> bool:
        """Whether it holds at `point`; what it raises but for an AssertionError is raised."""
        try:
            answer = self.predicate(self.subject, **point)
        except AssertionError:
            return False
        return answer is None or bool(answer)

    def refutation(self, point: Point) -> dict[str, Any] | None:
        """What refutes it at `point`, as the fields of a record; None where it holds."""
        try:
            answer = self.predicate(self.subject, **point)
        except BaseException as error:
            return self._record(point, self.blame.ending(error), said(error), self.blame.frames(error))
        if answer is None or answer:
            return None
        return self._record(point, Ending.REFUTED, f"the predicate answered {answer!r}"[:4000], [])

    def _record(self, point: Point, ending: Ending, error: str, frames: list[str]) -> dict[str, Any]:
        return {
            "ending": ending.value,
            "detail": error if ending is not Ending.REFUTED else "",
            "error": error,
            "frames": frames,
            "arguments": arguments(point),
            "exact": True,
        }


def arguments(point: Point) -> Mapping[str, Any]:
    return {name: encode(value)[0] for name, value in point.items()}
