"""Order the rows of several sources that are mixed by weights.

After any number of rows of an epoch, the number of rows of a source differs from its exact share by less than one row:
`source_pattern` assigns a source to every position, `mixed_order` fills the positions with shuffled rows.
"""

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
    """The order of the rows of several sources in every epoch.

    Rows are numbered from 0: all rows of the first source, then all rows of the second source, and so on. An epoch
    takes every row of the first source once. The numbers of rows from all sources have the proportion of the weights,
    up to one row. The rows of a source are shuffled. No row is taken again until every row of its source has been
    taken, also across epochs.

    Attributes:
        sizes: The number of rows of each source, above 0.
        weights: The weight of each source, a positive integer.
        batch_size: The number of rows of a batch.
    """

    sizes: Sequence[int]
    weights: Sequence[int]
    batch_size: int

    def __len__(self) -> int:
        """Return the number of rows of an epoch."""
        return epoch_length(self.sizes[0], tuple(self.weights))

    @property
    def batches(self) -> int:
        """The number of batches of an epoch, including the last one, which may be smaller."""
        return -(-len(self) // self.batch_size)

    def order(self, seed: int, epoch: int) -> Tensor:
        """Return the numbers of the rows of an epoch, int64 [len(self)]; `epoch` counts from 1."""
        return mixed_order(seed, epoch, self)


@lru_cache(maxsize=2)
def mixed_order(seed: int, epoch: int, mixture: Mixture) -> Tensor:
    """Return the rows of an epoch as `Mixture.order` does; the last two results are cached."""
    count = len(mixture)
    pattern = torch.tensor(source_pattern(tuple(mixture.weights)), dtype=torch.int64)
    sources = pattern.repeat(-(-count // len(pattern)))[:count]
    order, begin = torch.empty_like(sources), 0
    for source, size in enumerate(mixture.sizes):
        # The rows of a source are taken in rounds. A round takes every row once, in a new permutation. `row_numbers`
        # also counts the rows of earlier epochs, so that an epoch continues the round in which the previous one ended.
        positions = (sources == source).nonzero()[:, 0]
        row_numbers = torch.arange(len(positions)) + (epoch - 1) * len(positions)
        rounds, rows = row_numbers // size, row_numbers % size
        for number in rounds.unique().tolist():
            is_in_round = rounds == number
            order[positions[is_in_round]] = begin + permutation(f"{seed}/{number}/{source}", size)[rows[is_in_round]]
        begin += size
    return order


@lru_cache(maxsize=2)
def epoch_length(size: int, weights: tuple[int, ...]) -> int:
    """Return the number of rows of an epoch that takes all rows of the first source once; `size` is their number."""
    # The exact length is rounded down. If the last row of the first source comes later, the epoch ends with this row.
    periods, earlier = divmod(size - 1, weights[0])
    positions = [position for position, source in enumerate(source_pattern(weights)) if source == 0]
    return max(size * sum(weights) // weights[0], periods * sum(weights) + positions[earlier] + 1)


@lru_cache(maxsize=2)
def source_pattern(weights: tuple[int, ...]) -> list[int]:
    """Return the source of every row of a period of sum(weights) rows; a source has as many rows as its weight.

    Among the first n rows, for every n, the number of rows of a source differs from n * weight / sum(weights) by less
    than 1. Source: R. Tijdeman, The chairman assignment problem, Discrete Mathematics 32 (1980).
    """
    # The lag of a source is its exact share n * weight / total minus the number of its rows so far. For row n and k
    # sources, Tijdeman's algorithm considers the sources with a lag of at least 1 / (2k - 2), and takes the source
    # whose lag would be the first to reach the upper limit 1 - 1 / (2k - 2): after (limit - lag) * total / weight more
    # rows of the period. The list `lags` contains integers: the lags multiplied by total * (2k - 2).
    total, parts = sum(weights), max(2 * len(weights) - 2, 1)
    counts, pattern = [0] * len(weights), []
    for n in range(1, total + 1):
        lags = [parts * (n * weight - total * rows) for weight, rows in zip(weights, counts, strict=True)]
        late = [source for source, lag in enumerate(lags) if lag >= total]
        chosen = min(late, key=lambda source: Fraction((parts - 1) * total - lags[source], weights[source]))
        counts[chosen] += 1
        pattern.append(chosen)
    return pattern


def read_weights(text: str) -> dict[str, Fraction]:
    """Return the weights of the setting `mix`, a JSON object from path to weight, as exact fractions.

    Raises:
        SettingError: If the object is empty, or a weight is not a positive number below 10^9 whose fraction has a
            denominator below 10^9.
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
    """Return the smallest integers that have the proportion of the weights.

    Raises:
        SettingError: If the sum of the integers is 10^6 or more.
    """
    scale = lcm(*(weight.denominator for weight in weights))
    scaled = [int(weight * scale) for weight in weights]
    integers = [weight // gcd(*scaled) for weight in scaled]
    if sum(integers) >= 10**6:
        raise SettingError(f"weights in 'mix' have the proportion {integers}: expected integers with a sum below 10^6")
    return integers
