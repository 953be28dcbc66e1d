"""Rows of several sources in the proportion of weights, from which no beginning of an epoch deviates by a whole row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import gcd, lcm

import torch
from torch import Tensor

from reference_trainer.data.text import permutation
from reference_trainer.errors import SettingError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mixture:
    """An order of epochs over rows of several sources, numbered one source after the other.

    An epoch has as many rows as bring the first source once. The rows of a source are shuffled, and all taken before
    one is taken again, also over epochs.

    Attributes:
        sizes: The number of rows of each source, above 0.
        weights: Of each source, positive integers.
        batch_size: Rows of a batch.
    """

    sizes: Sequence[int]
    weights: Sequence[int]
    batch_size: int

    def __len__(self) -> int:
        """Return the number of rows of an epoch."""
        return max(self.sizes[0] * sum(self.weights) // self.weights[0], 1)

    @property
    def batches(self) -> int:
        return -(-len(self) // self.batch_size)

    def order(self, seed: int, epoch: int) -> Tensor:
        """Return the rows of an epoch in their order, int64 [len(self)], which depends on the arguments only."""
        return mixed_order(seed, epoch, self)


@lru_cache(maxsize=2)
def mixed_order(seed: int, epoch: int, mixture: Mixture) -> Tensor:
    """Return `mixture.order(seed, epoch)`."""
    count = len(mixture)
    pattern = torch.tensor(source_pattern(tuple(mixture.weights)), dtype=torch.int64)
    sources = pattern.repeat(-(-count // len(pattern)))[:count]
    order, begin = torch.empty_like(sources), 0
    for source, size in enumerate(mixture.sizes):
        places = (sources == source).nonzero()[:, 0]
        taken = torch.arange(len(places)) + (epoch - 1) * len(places)
        rounds, rows = taken // size, taken % size
        for number in rounds.unique().tolist():
            of_round = rounds == number
            order[places[of_round]] = begin + permutation(f"{seed}/{number}/{source}", size)[rows[of_round]]
        begin += size
    return order


@lru_cache(maxsize=2)
def source_pattern(weights: tuple[int, ...]) -> list[int]:
    """Return the source of each row of a period, which has sum(weights) rows, each source its weight.

    Of n rows from the begin of periods, a source has less than one row more or less than n * weight / sum(weights):
    R. Tijdeman, The chairman assignment problem, Discrete Mathematics 32 (1980). Of the sources that are behind by at
    least 1 / (2k - 2) rows after the next one, for k sources, the one that has to be taken soonest is taken.
    """
    total, parts = sum(weights), max(2 * len(weights) - 2, 1)
    taken, pattern = [0] * len(weights), []
    for n in range(1, total + 1):
        behind = [parts * (n * weight - total * rows) for weight, rows in zip(weights, taken, strict=True)]
        late = [source for source, share in enumerate(behind) if share >= total]
        chosen = min(late, key=lambda source: Fraction((parts - 1) * total - behind[source], weights[source]))
        taken[chosen] += 1
        pattern.append(chosen)
    return pattern


def read_weights(text: str) -> dict[str, Fraction]:
    """Return the weights of paths from a JSON object.

    Raise `SettingError` unless it has a path, and all weights are positive numbers of at most 9 digits.
    """
    values = json.loads(text, parse_float=Fraction, parse_int=Fraction)
    weights = {}
    for path, value in values.items():
        if not isinstance(value, Fraction) or not 0 < value < 10**9 or value.denominator >= 10**9:
            raise SettingError(f"invalid weight of {path!r} in 'mix': expected a positive number of at most 9 digits")
        weights[path] = value
    if not weights:
        raise SettingError("invalid value {} for 'mix': expected a path with a weight")
    return weights


def integer_weights(weights: Sequence[Fraction]) -> list[int]:
    """Return the smallest integers in the same proportion. Raise `SettingError` if their sum is 10^6 or more."""
    scale = lcm(*(weight.denominator for weight in weights))
    scaled = [int(weight * scale) for weight in weights]
    integers = [weight // gcd(*scaled) for weight in scaled]
    if sum(integers) >= 10**6:
        raise SettingError(f"weights in 'mix' are in the proportion {integers}: expected rounder numbers")
    return integers
