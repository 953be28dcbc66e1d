import functools
from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import DistributedSampler, RandomSampler

from pv.suites.driving import NotDriven
from pv.suites.sampler.bench import Bench


def once(size: int) -> Iterator[int]:
    return iter(range(size))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (once, "it returns an iterator, which has one epoch, and takes no `epoch`"),
        (lambda size, budget: [[0]], "nothing is known for its parameter 'budget'"),
        (lambda seed: [0], "no parameter is the dataset, its lengths or its size"),
        (lambda size: None, "TypeError: 'NoneType' object is not iterable"),
        (3, "it cannot be called"),
    ],
)
def test_what_to_write_is_said_where_it_cannot_be_driven(make: Any, why: str) -> None:
    with pytest.raises(NotDriven, match=rf"(?s)cannot drive .*{why}.*def make\(size, batch_size, seed, world_size"):
        Bench(make)


def test_what_a_partial_gives_is_left() -> None:
    assert "shuffle" in Bench(functools.partial(DistributedSampler, shuffle=False)).lacks
    assert "once" in Bench(functools.partial(RandomSampler, replacement=True)).lacks


def test_batches_may_be_arrays() -> None:
    run = Bench(lambda n: [range(k, min(k + 2, n)) for k in range(0, n, 2)]).start(size=3)
    assert run.epoch(0) == [[0, 1], [2]]
