"""Read the rank of a process from the environment variables of a launcher. This module does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reference_trainer.errors import SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The rank of a process.

    Attributes:
        rank: The number of the process, from 0 to world_size - 1.
        world_size: The number of processes.
        local_rank: The number of the process on its machine, from 0.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0


def read_place(environment: Mapping[str, str]) -> Place:
    """Return the ranks that a launcher such as `torchrun` sets; without a launcher, the ranks of a single process.

    Raise `SettingError` if only one of RANK and WORLD_SIZE exists, or a value is not an integer in its range.
    """
    if "WORLD_SIZE" not in environment and "RANK" not in environment:
        return Place()
    world_size = integer_variable(environment, "WORLD_SIZE", 1, 10**6)
    rank = integer_variable(environment, "RANK", 0, world_size - 1)
    # Without LOCAL_RANK, assume that all processes run on one machine.
    local_rank = integer_variable(environment, "LOCAL_RANK", 0, rank) if "LOCAL_RANK" in environment else rank
    return Place(rank=rank, world_size=world_size, local_rank=local_rank)


def integer_variable(environment: Mapping[str, str], name: str, least: int, most: int) -> int:
    """Return the integer from `least` to `most` in a variable. Raise `SettingError` for other values."""
    text = environment.get(name, "")
    # `int` refuses thousands of digits by a ValueError.
    if not (text.isascii() and text.isdecimal() and len(text) <= 18 and least <= int(text) <= most):
        raise SettingError(
            f"invalid value {text[:80]!r} for the variable {name}: expected an integer from {least} to {most}, as "
            f"torchrun sets it; to train in one process, unset RANK and WORLD_SIZE"
        )
    return int(text)
