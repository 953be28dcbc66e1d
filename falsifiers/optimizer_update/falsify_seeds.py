"""Attacks on the seed of a micro-batch. The subject has the public names of `training.randomness`."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

VALUES = (0, 1, 2, 11, 12, 21, 111)
"""Numbers whose digits can be read as those of their neighbours: 1 and 11, 11 and 1."""
NUMBERS = st.integers(0, 2**64)
PLACES = st.fixed_dictionaries(dict.fromkeys(("epoch", "step", "micro_batch", "rank"), NUMBERS))


def falsify_seeds_never_collide(subject: Any) -> None:
    first: dict[int, tuple[int, ...]] = {}
    for at in itertools.product(VALUES, repeat=5):
        run, epoch, step, micro_batch, rank = at
        seed = subject.micro_batch_seed(run, epoch=epoch, step=step, micro_batch=micro_batch, rank=rank)
        assert 0 <= seed < 2**63, f"(seed, epoch, step, micro-batch, rank) {at} has the seed {seed}"
        assert first.setdefault(seed, at) == at, f"{at} and {first[seed]} have the same seed {seed}"


@given(seed=NUMBERS, at=PLACES)
def falsify_seeds_are_stable(subject: Any, seed: int, at: dict[str, int]) -> None:
    key = "/".join(str(number) for number in (seed, at["epoch"], at["step"], at["micro_batch"], at["rank"]))
    expected = int(hashlib.sha256(key.encode()).hexdigest()[:16], 16) // 2
    seen = subject.micro_batch_seed(seed, **at)
    assert seen == expected, f"the seed of {seed}, {at} is {seen}; expected {expected}"


@given(seed=st.integers(0, 2**63 - 1), student=st.sampled_from(["cpu", "meta", "cuda:7"]))
def falsify_the_host_is_seeded_for_any_device(subject: Any, seed: int, student: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state().tolist()
    with subject.own_generators(torch.device(student)):
        subject.seed_generators(seed, torch.device(student))
        seen = torch.initial_seed()
    assert seen == seed, f"with a student on {student} the seed of the CPU is {seen}; expected {seed}"
    assert torch.get_rng_state().tolist() == before, f"with a student on {student} the CPU is not restored"
