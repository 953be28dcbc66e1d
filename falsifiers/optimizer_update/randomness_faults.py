"""Wrong versions of public functions: the faults that the contract declares."""

from __future__ import annotations

from typing import Any

SEEDED: list[int] = []
"""The seeds that `seeded_once` was given."""


def joined_without_a_separator(original: Any, seed: int, **at: int) -> int:
    """Join the numbers without a separator."""
    digits = "".join(map(str, (seed, *at.values())))
    return int(original(int(digits), **dict.fromkeys(at, 0)))


def epoch_zero_for_ever(original: Any, seed: int, **at: int) -> int:
    """Seed by the micro-batch of its window alone, the same in every epoch."""
    return int(original(seed, **at | {"epoch": 0, "step": 0}))


def seeded_once(original: Any, seed: int, device: Any) -> None:
    """Seed before the first micro-batch only: what is drawn elsewhere shifts all later numbers."""
    if not SEEDED:
        original(seed, device)
    SEEDED.append(seed)
