import pytest
import torch

from pv.contract.claims import Falsifier
from pv.suites.training_loop import loop
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.job import Job
from tests.suites.training_loop.planting import attack_of, by_id, claims, correct, refutation


@claims("averages")
def test_claim_holds_for_the_correct_loop(claim: Falsifier) -> None:
    attack_of(claim)(bench=correct())


@pytest.mark.parametrize(
    ("mutant", "claim", "cause"),
    [
        ("average-before-step", "TL-AVERAGE-001", "so it is updated before the step"),
        ("average-never", "TL-AVERAGE-001", "the weights at the start: it is never updated"),
        ("resume-without-average", "TL-AVERAGE-002", "starts anew with the weights of the checkpoint"),
    ],
)
def test_cause_is_named(mutant: str, claim: str, cause: str) -> None:
    assert cause in refutation(mutant, claim)


def test_decay_that_warms_up_is_named_and_can_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Saying(loop.Loop):
        def expected_decay(self, job: Job, done: int) -> float:
            return min(job.average or 0.0, (1 + done) / (10 + done))

    updates = {"done": 0}

    @torch.no_grad()
    def average(mean: torch.nn.Module, model: torch.nn.Module, decay: float | None) -> None:
        warm = min(decay or 0.0, (1 + updates["done"]) / (10 + updates["done"]))
        updates["done"] += 1
        for each, new in zip(mean.parameters(), model.parameters(), strict=True):
            each.copy_(warm * each + (1 - warm) * new)

    def begin(job: Job) -> loop.Training:
        updates["done"] = 0
        return original(job)

    original = loop.begin
    monkeypatch.setattr(loop, "average", average)
    monkeypatch.setattr(loop, "begin", begin)
    attack = attack_of(by_id("TL-AVERAGE-001"))
    attack(bench=Bench(Saying()))
    with pytest.raises(AssertionError, match="expected_decay"):
        attack(bench=Bench(loop.Loop()))
