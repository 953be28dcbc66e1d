"""Faults of mixtures and streams, as wrong versions of public functions."""

from __future__ import annotations

from typing import Any


def sources_one_by_one(original: Any, weights: Any) -> list[int]:
    return [source for source, weight in enumerate(weights) for _ in range(weight)]


def epochs_begin_anew(original: Any, seed: int, epoch: int, mixture: Any) -> Any:
    return original(seed, 1, mixture)


def goes_on_reading(original: Any, stream: Any, epoch: int, position: int) -> Any:
    stream._read = min(stream._read, (position - 1) * stream.world_size + stream.rank)
    return original(stream, epoch, position)


def rounded_weights(original: Any, weights: Any) -> list[int]:
    return [max(round(weight), 1) for weight in weights]
