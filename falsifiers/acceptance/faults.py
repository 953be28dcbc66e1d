"""Faults of the count of accepted drafts."""

from __future__ import annotations

from typing import Any


def documents_crossed(original: Any, agreed: Any, scored: Any, segments: Any, depth: int) -> Any:
    return original(agreed, scored, None, depth)


def prompts_crossed(original: Any, agreed: Any, scored: Any, segments: Any, depth: int) -> Any:
    return original(agreed | ~scored, scored | True, segments, depth)


def shares_of_batches(original: Any, agreed: Any, scored: Any, segments: Any, depth: int) -> Any:
    hits, trials = original(agreed, scored, segments, depth)
    return [hit / trial.clamp(min=1) for hit, trial in zip(hits, trials, strict=True)], [
        trial.clamp(max=1) for trial in trials
    ]


def one_more(original: Any, shares: Any) -> float:
    return float(original(shares)) + 1


def sum_of_shares(original: Any, shares: Any) -> float:
    return float(sum(shares))
