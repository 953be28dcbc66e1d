"""Claims of the suite `sampler` on released samplers, on others that are right, and on wrong ones."""

import random
import re
from typing import Any

import pytest
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler, WeightedRandomSampler

from pv.suites.sampler import batches
from reference_trainer.data.text import epoch_order
from tests.suites.trying import trying_of

TRYING = trying_of("sampler")
RANKS, SEED = {"SMP-RANKS-001", "SMP-FEW-001"}, {"SMP-SEED-001", "SMP-GLOBAL-001"}
STATE, SIZE, EPOCH = {"SMP-RESUME-001"}, {"SMP-SIZE-001"}, {"SMP-EPOCH-001"}


@pytest.mark.parametrize(
    ("make", "not_claimed"),
    [
        (RandomSampler, RANKS | STATE | SIZE),
        (SequentialSampler, RANKS | STATE | SIZE | SEED | EPOCH),
        (BatchSampler, RANKS | STATE | SEED | EPOCH),
        (DistributedSampler, STATE | SIZE),
        (WeightedRandomSampler, {"SMP-ONCE-001"} | RANKS | EPOCH | STATE | SIZE),
        (lambda n, seed, epoch: epoch_order(seed, epoch, n), RANKS | STATE | SIZE),
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


def test_another_epoch_than_the_restored_one_starts_at_its_first_batch() -> None:
    restored, fresh = batches.Batches(10, 2), batches.Batches(10, 2)
    restored.load_state_dict({"epoch": 0, "done": 2})
    for sampler in (restored, fresh):
        sampler.set_epoch(1)
    assert list(restored) == list(fresh)


def drawn_globally(size: int, seed: int, epoch: int) -> list[int]:
    random.seed(seed + epoch)
    return random.sample(range(size), size)


order = batches.order


@pytest.mark.parametrize(
    ("name", "fault", "claim", "message"),
    [
        (
            "examples_per_rank",
            lambda size, world, drop: size // world + (not drop),
            "RANKS",
            "are repeated; padding takes",
        ),
        (
            "every_nth",
            lambda indices, world, _: indices[: len(indices) // world],
            "RANKS",
            "on no rank; .*; every rank has the same",
        ),
        ("order", lambda size, seed, _: order(size, seed, 0), "EPOCH", "epochs 0 and 1 have the same order .*; set"),
        ("order", lambda size, seed, epoch: order(size, seed, epoch % 2), "EPOCH", "epochs 0 and 2 have the same"),
        ("Batches.load_state_dict", lambda self, state: None, "RESUME", "resumed after .*; it starts the epoch again"),
        ("Batches.state_dict", lambda self: {"epoch": self.epoch, "done": self.done - 1}, "RESUME", "is repeated"),
        ("order", drawn_globally, "GLOBAL", "it draws from the global generator of random"),
    ],
)
def test_fault_has_its_cause(monkeypatch: pytest.MonkeyPatch, name: str, fault: Any, claim: str, message: str) -> None:
    monkeypatch.setattr(f"pv.suites.sampler.batches.{name}", fault)
    messages = TRYING.wrong(batches.Batches)
    assert re.search(message, messages[f"SMP-{claim}-001"]), messages


def test_position_of_the_sampler_of_the_suite_is_saved_before_the_next_batch() -> None:
    sampler, uninterrupted = batches.Batches(8, 2), batches.Batches(8, 2)
    sampler.load_state_dict({"epoch": 1, "done": 2})
    assert sampler.state_dict() == {"epoch": 1, "done": 2}
    sampler.set_epoch(2)
    assert sampler.state_dict() == {"epoch": 2, "done": 0}
    uninterrupted.set_epoch(2)
    assert list(sampler) == list(uninterrupted)


def test_an_order_by_the_global_generator_is_refuted() -> None:
    accelerate = pytest.importorskip("accelerate.data_loader")
    messages = TRYING.wrong(accelerate.SeedableRandomSampler)
    assert "have the same order" in messages["SMP-SEED-001"]
    assert "another order once the global generators are seeded anew" in messages["SMP-GLOBAL-001"]
