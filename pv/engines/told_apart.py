"""Whether what the code answered tells an equation from its one-symbol changes: what shows that the attack can fail.

The code is not asked again. A change is told apart where, on an example that the equation itself held on, the changed
equation would have been refuted, or has no value.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pv.engines.observed import Observation
from pv.equations.changes import Change, changes
from pv.equations.draw import Example
from pv.equations.equation import SLACK, Equation, Limits
from pv.equations.system import Claim

MAX_EXAMPLES = 200
MAX_ELEMENTS = 2**20
"""How many numbers the kept examples have in all: what they cost in memory and, for each change, in time."""


def judged(claim: Claim, kept: "Kept") -> dict[str, Any]:
    """How many changes there are, how many were told apart, and which were not."""
    survivors, total = [], 0
    for change in all_changes(claim):
        total += 1
        changed = equation_with(claim, change)
        if not any(tells_apart(claim, changed, example, seen) for example, seen in kept.examples):
            survivors.append({key: getattr(change, key) for key in ("equation", "line", "column", "before", "after")})
    return {"total": total, "told_apart": total - len(survivors), "survivors": survivors}


def all_changes(claim: Claim) -> Iterator[Change]:
    """The changes of a claim's equation and of those that it calls."""
    return changes(claim.equation.name, claim.equation.callees, claim.equation.results)


def equation_with(claim: Claim, change: Change) -> Equation:
    """The equation as it is with a change."""
    equation = claim.equation
    return replace(equation, formula=change.callees[equation.name].formula, callees=change.callees)


def tells_apart(claim: Claim, changed: Equation, example: Example, seen: Sequence[Observation]) -> bool:
    """Whether an example shows that `changed` is another equation."""
    try:
        values = changed.exact(example)
        limits = Limits(changed, claim.accuracy, example, values)
        return any(bool(v.isnan().any()) for v in values) or any(_apart(each, limits) for each in seen)
    except Exception:  # a change that cannot be evaluated is no equation at all
        return True


def _apart(seen: Observation, limits: Limits) -> bool:
    value = limits.values[seen.place]
    if seen.result.shape != value.shape:
        return True
    apart = seen.apart(value)
    unit = limits.accuracy.unit(limits.example.dtype) if seen.by_code else 0.0
    if limits.accuracy.tolerance is None and not (apart > SLACK * unit * value.abs().nan_to_num(posinf=0.0)).any():
        return False  # within the least that is ever allowed; the rest costs eight more evaluations
    return bool((apart > seen.limit(limits)).any())


class Kept:
    """The first examples that the equation held on, and what was seen on each, within limits."""

    def __init__(self) -> None:
        self.examples: list[tuple[Example, Sequence[Observation]]] = []
        self._room = MAX_ELEMENTS

    def add(self, example: Example, seen: Sequence[Observation]) -> None:
        self._room -= sum(array.numel() for array in example.arrays.values())
        if self._room >= 0 and len(self.examples) < MAX_EXAMPLES:
            answers = [replace(each, result=each.result.detach().cpu()) for each in seen]
            self.examples.append((example, answers))
