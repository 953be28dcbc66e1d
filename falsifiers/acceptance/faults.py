"""Faults of the count of accepted drafts."""

from __future__ import annotations

from typing import Any


def documents_crossed(original: Any, agreed: Any, scored: Any, segments: Any, depth: int) -> Any:
    """Let a draft go on in the next document of its row."""
    return original(agreed, scored, None, depth)


def prompts_crossed(original: Any, agreed: Any, scored: Any, segments: Any, depth: int) -> Any:
    """Accept what is not predicted, and let a draft go on after it."""
    return original(agreed | ~scored, scored | True, segments, depth)


def shares_of_batches(original: Any, agreed: Any, scored: Any, segments: Any, depth: int) -> Any:
    """Give each batch the share that it accepts, so that their mean is one of ratios."""
    hits, trials = original(agreed, scored, segments, depth)
    return [hit / trial.clamp(min=1) for hit, trial in zip(hits, trials, strict=True)], [
        trial.clamp(max=1) for trial in trials
    ]


def one_more(original: Any, shares: Any) -> float:
    """Count the token that the teacher adds."""
    return float(original(shares)) + 1


def sum_of_shares(original: Any, shares: Any) -> float:
    """Add the shares, which are those of drafts that have come so far."""
    return float(sum(shares))
