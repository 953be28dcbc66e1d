"""Wrong versions of public functions: the faults that the contract `randomness` declares."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

SEEDED: list[int] = []
"""The seeds that `seeded_once` was given."""


def joined_without_a_separator(original: Any, seed: int, **at: int) -> int:
    """Join the numbers without a separator."""
    digits = "".join(map(str, (seed, *at.values())))
    return int(original(int(digits), **dict.fromkeys(at, 0)))


def salted_by_the_process(original: Any, seed: int, **at: int) -> int:
    """Use Python's hash, which differs from one version to the next, or from one process to the next."""
    return hash((seed, *at.values())) % 2**63


def same_for_every_rank(original: Any, seed: int, **at: int) -> int:
    """Give every rank the same seeds."""
    return int(original(seed, **at | {"rank": 0}))


def same_in_a_window(original: Any, seed: int, **at: int) -> int:
    """Give all micro-batches of a step the same seed."""
    return int(original(seed, **at | {"micro_batch": 0}))


def epoch_zero_for_ever(original: Any, seed: int, **at: int) -> int:
    """Seed by the micro-batch of its window alone, the same in every epoch."""
    return int(original(seed, **at | {"epoch": 0, "step": 0}))


def seeded_once(original: Any, seed: int, device: Any) -> None:
    """Seed before the first micro-batch only: what is drawn elsewhere shifts all later numbers."""
    if not SEEDED:
        original(seed, device)
    SEEDED.append(seed)


@contextmanager
def left_seeded(original: Any, device: Any) -> Iterator[None]:
    """Leave the generators as the run left them."""
    yield


@contextmanager
def restored_after_success(original: Any, device: Any) -> Iterator[None]:
    """Restore the generators after a run without exception only."""
    before = torch.get_rng_state()
    yield
    torch.set_rng_state(before)


def seed_of_none(original: Any, *models: Any, seed: int | None = None, **others: Any) -> Any:
    """Take a run without a seed for one of seed 0."""
    return original(*models, seed=seed or 0, **others)
