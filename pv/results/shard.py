"""A shard: one of several parts of a validation that run on different machines."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pv.errors import UsageError


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """Part `index` of a validation in `of` parts, counted from 1."""

    index: int
    of: int

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"


def parse(text: str) -> Shard:
    """Return the shard that is written as "K/N". Raise `UsageError` for another text."""
    match = re.fullmatch(r"([0-9]+)/([0-9]+)", text, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"invalid value {text!r} for 'shard': expected K/N with K from 1 to N, such as 2/4")
    return Shard(int(match[1]), int(match[2]))


def missing(shards: Iterable[Shard]) -> tuple[Shard, ...]:
    """Return the shards that are missing from a complete validation."""
    present = {*shards}
    return tuple(sorted({Shard(index, shard.of) for shard in present for index in range(1, shard.of + 1)} - present))
