"""Finds equations that any code fulfils, because their measured tolerance is no smaller than their values."""

from dataclasses import dataclass, field

from pv.engines.equation.comparison import Comparison
from pv.equations.evaluate import Limits

SHARE = 0.9


@dataclass
class _Count:
    examples: int = 0
    loose: int = 0
    largest: tuple[float, float] = (0.0, 0.0)
    """The largest value of a loose example, and its tolerance."""


@dataclass
class ToleranceCheck:
    """Counts the examples on which zeros instead of the code's results would be accepted."""

    _counts: dict[tuple[str, int], _Count] = field(default_factory=dict)

    def add(self, seen: Comparison, limits: Limits) -> None:
        """Count a value of the code. A tolerance that the contract gives has a reason, and is not judged."""
        sizes = limits.values[seen.place].abs()
        if not seen.by_code or limits.accuracy.tolerance is not None or not sizes.any():
            return
        count, allowed = self._counts.setdefault((seen.says, seen.place), _Count()), seen.limit(limits)
        count.examples += 1
        if (sizes <= allowed).all():
            count.loose += 1
            at = sizes.argmax()
            count.largest = max(count.largest, (float(sizes.flatten()[at]), float(allowed.flatten()[at])))

    @property
    def reason(self) -> str:
        """Return why the comparison shows nothing, "" if it shows something."""
        for count in self._counts.values():
            if count.loose >= SHARE * count.examples:
                value, tolerance = count.largest
                return (
                    f"the tolerance ±{tolerance:.2g} is no smaller than the values, up to {value:.2g}, in "
                    f"{count.loose} of {count.examples} examples: write it without cancellation, or give a `tolerance`"
                )
        return ""
