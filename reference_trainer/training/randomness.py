"""Random numbers of a run: every micro-batch has its own seed, so a resumed run needs no saved generator."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["micro_batch_seed", "own_generators", "seed_generators"]


def micro_batch_seed(seed: int, *, epoch: int, step: int, micro_batch: int, rank: int) -> int:
    """Return the seed of a micro-batch, below 2^63: a hash, so that neighbouring arguments give unrelated numbers."""
    key = f"{seed}/{epoch}/{step}/{micro_batch}/{rank}".encode()
    return int.from_bytes(hashlib.sha256(key).digest()[:8]) >> 1


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the default generators of the CPU and of `device`; those of other devices stay as they are."""
    for generator in _generators(device):
        generator.manual_seed(seed)


@contextmanager
def own_generators(device: torch.device) -> Iterator[None]:
    """Restore the default generators of the CPU and of `device` afterwards, also after an exception."""
    before = [(generator, generator.get_state()) for generator in _generators(device)]
    try:
        yield
    finally:
        for generator, state in before:
            generator.set_state(state)


def _generators(device: torch.device) -> list[torch.Generator]:
    # `cuda` without an index is the current GPU, but is unequal to the device of that GPU's generator, `cuda:0`.
    # `current_device` initialises CUDA; before that PyTorch lists no generators of GPUs.
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    every = (torch.default_generator, *torch.cuda.default_generators)
    return [generator for generator in every if generator.device in (torch.device("cpu"), device)]
