"""Tries the mutants of an equation on the results of the code, which shows that the attack can fail.

The code is not called again. A mutant is killed if, on an example on which the equation itself held, the mutated
equation is refuted or has no value.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pv.engines.equation.comparison import Comparison
from pv.equations.evaluate import SLACK, Claim, Equation, Limits
from pv.equations.examples import Example
from pv.equations.mutants import MutatedEquation, mutants

MAX_EXAMPLES = 200
MAX_ELEMENTS = 2**20
"""The total number of elements of the kept examples: it limits memory and, for each mutant, time."""


def tried(claim: Claim, kept: "KeptExamples") -> dict[str, Any]:
    """Return how many mutants there are, how many were killed, and the survivors."""
    survivors, total = [], 0
    for mutant in mutants_of(claim):
        total += 1
        mutated = equation_with(claim, mutant)
        if not any(kills(claim, mutated, example, seen) for example, seen in kept.examples):
            survivors.append({key: getattr(mutant, key) for key in ("equation", "line", "column", "before", "after")})
    return {"total": total, "killed": total - len(survivors), "survivors": survivors}


def mutants_of(claim: Claim) -> Iterator[MutatedEquation]:
    """Yield the mutants of a claim's equation and of those that it calls."""
    return mutants(claim.equation.name, claim.equation.callees, claim.equation.results)


def equation_with(claim: Claim, mutant: MutatedEquation) -> Equation:
    """Return the equation of a claim with a mutant in it."""
    equation = claim.equation
    return replace(equation, formula=mutant.callees[equation.name].formula, callees=mutant.callees)


def kills(claim: Claim, mutated: Equation, example: Example, seen: Sequence[Comparison]) -> bool:
    """Return whether an example kills the mutated equation."""
    try:
        values = mutated.exact(example)
        limits = Limits(mutated, claim.accuracy, example, values)
        return any(bool(v.isnan().any()) for v in values) or any(_apart(comparison, limits) for comparison in seen)
    except Exception:  # a mutant that cannot be evaluated is killed
        return True


def _apart(seen: Comparison, limits: Limits) -> bool:
    value = limits.values[seen.place]
    if seen.result.shape != value.shape:
        return True
    apart = seen.apart(value)
    unit = limits.unit(seen.result.dtype) if seen.by_code else 0.0
    if limits.accuracy.tolerance is None and not (apart > SLACK * unit * value.abs().nan_to_num(posinf=0.0)).any():
        return False  # within the smallest limit; the exact limit costs eight more evaluations
    return bool((apart > seen.limit(limits)).any())


class KeptExamples:
    """The first examples on which the equation held, with their comparisons, at most `MAX_EXAMPLES`."""

    def __init__(self) -> None:
        self.examples: list[tuple[Example, Sequence[Comparison]]] = []
        self._room = MAX_ELEMENTS

    def add(self, example: Example, seen: Sequence[Comparison]) -> None:
        self._room -= sum(array.numel() for array in example.arrays.values())
        if self._room >= 0 and len(self.examples) < MAX_EXAMPLES:
            answers = [replace(comparison, result=comparison.result.detach().cpu()) for comparison in seen]
            self.examples.append((example, answers))
