"""Claims of the suite `sampler` on released samplers, on others that are right, and on wrong ones."""

import math
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler, WeightedRandomSampler

from reference_trainer.data.text import epoch_order
from tests.suites.trying import Trying

TRYING = Trying("sampler")
RANKS, SEED = {"SMP-RANKS-001", "SMP-FEW-001"}, {"SMP-SEED-001", "SMP-GLOBAL-001"}
STATE, SIZE, EPOCH = {"SMP-RESUME-001"}, {"SMP-SIZE-001"}, {"SMP-EPOCH-001"}


def own_order(n: int, seed: int, epoch: int) -> Tensor:
    return epoch_order(seed, epoch, n)


@pytest.mark.parametrize(
    ("make", "not_claimed"),
    [
        (RandomSampler, RANKS | STATE | SIZE),
        (SequentialSampler, RANKS | STATE | SIZE | SEED | EPOCH),
        (BatchSampler, RANKS | STATE | SEED | EPOCH),
        (DistributedSampler, STATE | SIZE),
        (WeightedRandomSampler, {"SMP-ONCE-001"} | RANKS | EPOCH | STATE | SIZE),
        (own_order, RANKS | STATE | SIZE),
    ],
)
def test_correct_samplers_keep_what_they_claim(make: Any, not_claimed: set[str]) -> None:
    assert TRYING.wrong(make) == dict.fromkeys(not_claimed, "")


def test_released_samplers_keep_what_they_claim() -> None:
    accelerate = pytest.importorskip("accelerate.data_loader")
    transformers = pytest.importorskip("transformers.trainer_pt_utils")
    stateful = pytest.importorskip("torchdata.stateful_dataloader.sampler")

    def seeded(dataset: Any, seed: int) -> Any:
        return accelerate.SeedableRandomSampler(dataset, data_seed=seed)

    assert TRYING.wrong(seeded).keys() == RANKS | STATE | SIZE
    assert TRYING.wrong(transformers.LengthGroupedSampler).keys() == RANKS | STATE | SIZE
    assert TRYING.wrong(stateful.RandomSampler) == dict.fromkeys(RANKS | SIZE, "")
    assert TRYING.wrong(stateful.BatchSampler) == dict.fromkeys(RANKS | SEED | EPOCH, "")
    assert TRYING.wrong(stateful.StatefulDistributedSampler) == dict.fromkeys(SIZE, "")


class Indices:
    """A right sampler of indices."""

    def __init__(
        self, dataset: Any, num_replicas: int = 1, rank: int = 0, seed: int = 0, drop_last: bool = False
    ) -> None:
        self.size, self.world, self.rank, self.seed, self.drop = len(dataset), num_replicas, rank, seed, drop_last
        self.share = self.size // num_replicas if drop_last else math.ceil(self.size / num_replicas)
        self.epoch = self.taken = self.skip = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def order(self) -> list[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        found: list[int] = torch.randperm(self.size, generator=generator).tolist()
        return (found * self.world)[: self.share * self.world]

    def own(self) -> list[int]:
        return self.order()[self.rank :: self.world]

    def __iter__(self) -> Iterator[int]:
        self.taken, self.skip = self.skip, 0
        for index in self.own()[self.taken :]:
            self.taken += 1
            yield index

    def __len__(self) -> int:
        return self.share

    def state_dict(self) -> dict[str, int]:
        return {"taken": self.taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.skip = state["taken"]


class PadsTwice(Indices):
    def order(self) -> list[int]:
        self.share += self.share * self.world < self.size + self.world and not self.drop
        return super().order()


class IgnoresEpoch(Indices):
    def set_epoch(self, epoch: int) -> None:
        pass


class SameOnAll(Indices):
    def own(self) -> list[int]:
        return self.order()[: self.share]


class Anew(Indices):
    def load_state_dict(self, state: dict[str, int]) -> None:
        pass


class OneRepeated(Indices):
    def state_dict(self) -> dict[str, int]:
        return {"taken": self.taken - 1}


class Global(Indices):
    def order(self) -> list[int]:
        random.seed(self.seed + self.epoch)
        return (random.sample(range(self.size), self.size) * self.world)[: self.share * self.world]


@pytest.mark.parametrize(
    ("make", "claim", "message"),
    [
        (PadsTwice, "SMP-RANKS-001", "indices are repeated; padding takes"),
        (SameOnAll, "SMP-RANKS-001", "are on no rank; .*; every rank has the same"),
        (IgnoresEpoch, "SMP-EPOCH-001", "the epochs 0 and 1 have the same order .*; set_epoch was called before each"),
        (Anew, "SMP-RESUME-001", "resumed after .*; it starts the epoch again"),
        (OneRepeated, "SMP-RESUME-001", "resumed after .*; an item is repeated"),
        (Global, "SMP-GLOBAL-001", "it draws from the global generator of random"),
    ],
)
def test_wrong_samplers_are_refuted(make: Any, claim: str, message: str) -> None:
    found = TRYING.wrong(make)
    assert re.search(message, found[claim]), found


def test_an_order_by_the_global_generator_is_refuted() -> None:
    accelerate = pytest.importorskip("accelerate.data_loader")
    found = TRYING.wrong(accelerate.SeedableRandomSampler)
    assert "have the same order" in found["SMP-SEED-001"]
    assert "another order once the global generators are seeded anew" in found["SMP-GLOBAL-001"]
