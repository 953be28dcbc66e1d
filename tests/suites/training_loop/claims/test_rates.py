import pytest

from pv.contract.claims import Falsifier
from pv.suites.training_loop import loop, plan
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.rates import (
    falsify_rate_of_each_step,
    falsify_rates_do_not_depend_on_accumulation,
)
from pv.suites.training_loop.job import Job
from tests.suites.training_loop.planting import attack_of, claims, correct, refutation


@claims("rates")
def test_claim_holds_for_the_correct_loop(claim: Falsifier) -> None:
    attack_of(claim)(bench=correct())


def test_decay_of_a_bias_is_named() -> None:
    assert "head.bias has the weight decay 0.1, not 0.0" in refutation("bias-decays", "TL-DECAY-001")


def test_decay_in_the_gradient_is_named() -> None:
    assert "a decay that is added to the gradient" in refutation("decay-in-the-gradient", "TL-DECAY-002")


def from_above_zero(job: Job, done: int, planned: int) -> float:
    return (done + 1) / job.warmup if done < job.warmup else plan.factor(job, done, planned)


@claims("rates")
def test_claim_holds_for_a_warmup_that_begins_above_zero(claim: Falsifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "factor", from_above_zero)
    attack_of(claim)(bench=Bench(loop.Loop()))


def test_warmup_above_zero_that_advances_with_every_micro_batch_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def per_micro_batch(job: Job, done: int, planned: int) -> float:
        return from_above_zero(job, min(done * job.accumulate, planned), planned)

    monkeypatch.setattr(loop, "factor", per_micro_batch)
    with pytest.raises(AssertionError, match="a schedule that advances with every micro-batch"):
        falsify_rate_of_each_step(Bench(loop.Loop()))


def test_schedule_planned_for_the_micro_batches_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "factor", lambda job, done, planned: plan.factor(job, done, planned * job.accumulate))
    for claim in (falsify_rate_of_each_step, falsify_rates_do_not_depend_on_accumulation):
        with pytest.raises(
            AssertionError, match="it is a schedule that is planned for as many steps as there are micro-"
        ):
            claim(Bench(loop.Loop()))


def test_a_decay_that_ignores_the_warm_up_is_named() -> None:
    assert "its decay is counted from the first step" in refutation("decay-from-the-first-step", "TL-RATE-001")
