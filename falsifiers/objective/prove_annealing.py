"""Predicates over bounded boxes: values that change during a run, for integer ends.

The subject has `Annealed`, as `training.annealing` does. Expectations are closed forms over rational numbers.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any


def _annealed(subject: Any, start: int, end: int, cosine: bool, warmup: int) -> Any:
    return subject.Annealed(start, end, "cosine" if cosine else "linear", warmup)


def prove_linear_values(subject: Any, start: int, end: int, warmup: int, total: int, step: int) -> None:
    """A linear value is the rational closed form, rounded once."""
    now, first = min(step, total), max(warmup, 1)
    if now < first:
        expected = Fraction(start * now, first)
    elif total <= first:
        expected = Fraction(start)
    else:
        expected = start + Fraction((end - start) * (now - first), total - first)
    seen = _annealed(subject, start, end, False, warmup).at(step, total)
    assert seen == float(expected), f"step {step} of {total} has {seen!r}; expected {float(expected)!r}"


def prove_ends(subject: Any, start: int, end: int, cosine: bool, warmup: int, total: int, beyond: int) -> None:
    """The first step after the warm-up has the start, the last step and all later ones have the end."""
    annealed, first = _annealed(subject, start, end, cosine, warmup), max(warmup, 1)
    last = annealed.at(total, total)
    if total >= first:
        assert annealed.at(first, total) == start, f"step {first} of {total} has {annealed.at(first, total)!r}"
        expected = end if total > first else start
        assert last == expected, f"step {total} of {total} has {last!r}; expected {expected}"
    after = annealed.at(total + beyond, total)
    assert after == last, f"step {total + beyond} has {after!r}, step {total} of {total} has {last!r}"


def prove_values_never_turn_back(
    subject: Any, start: int, end: int, cosine: bool, warmup: int, total: int, step: int
) -> None:
    """From a step to the next one the value moves towards its target and not beyond it."""
    annealed, first = _annealed(subject, start, end, cosine, warmup), max(warmup, 1)
    now, then = annealed.at(step, total), annealed.at(step + 1, total)
    warming = min(step, total) < first
    low, high = (0, start) if warming else (min(start, end), max(start, end))
    assert low <= now <= high, f"step {step} of {total} has {now!r}; expected a value from {low} to {high}"
    steps = f"steps {step} and {step + 1} of {total} have {now!r} and {then!r}"
    if step >= total or (start == 0 if warming else start == end):
        assert now == then, f"{steps}; expected the same value"
    else:
        assert now < then if warming or start < end else now > then, f"{steps}; expected a step towards the target"
