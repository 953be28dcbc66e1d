"""Claims of the suite `lr-schedule` on PyTorch's schedulers, on others that are right, and on wrong ones."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LambdaLR

from pv.suites.lr_schedule.cosine import WarmupCosine
from pv.suites.lr_schedule.suite import Bench
from reference_trainer.plan.rates import learning_rate
from tests.suites.trying import trying_of

TRYING = trying_of("lr-schedule")
TESTS = TRYING.tests
WARMUP, SCHEDULER = {"LRS-PEAK-001", "LRS-EDGE-001"}, {"LRS-STATE-001", "LRS-GROUP-001"}


def linear(step: int, warmup: int, total: int) -> float:
    return step / warmup if step < warmup else max(0.0, (total - step) / max(1, total - warmup))


def from_above_zero(step: int, warmup: int, total: int) -> float:
    return (step + 1) / warmup if step < warmup else max(0.0, (total - 1 - step) / max(1, total - 1 - warmup))


def from_one(step: int, *, peak: float, warmup: int, total: int) -> float:
    return learning_rate(step, peak=peak, warmup=warmup, total=total)


from_one.first = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("make", "not_claimed"),
    [
        (lambda optimizer, warmup, total: LambdaLR(optimizer, lambda step: linear(step, warmup, total)), set()),
        (lr_scheduler.CosineAnnealingLR, WARMUP | {"LRS-STAY-001"}),
        (lr_scheduler.OneCycleLR, WARMUP | {"LRS-STAY-001", "LRS-GROUP-001"}),
        (linear, SCHEDULER),
        (learning_rate, SCHEDULER),
        (from_one, SCHEDULER),
    ],
)
def test_correct_schedules_keep_what_they_claim(make: Any, not_claimed: set[str]) -> None:
    assert TRYING.wrong(make) == dict.fromkeys(not_claimed, "")


def test_a_warmup_may_begin_above_zero() -> None:
    for id_ in ("LRS-PEAK-001", "LRS-DECAY-001", "LRS-END-001", "LRS-STAY-001"):
        TESTS[id_](bench=Bench(from_above_zero))


class Forgets(WarmupCosine):
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "steps": 0}


def late(step: int, warmup: int, total: int) -> float:
    return step / (warmup + 1) if step <= warmup else linear(step, warmup, total)


def unlimited(step: int, warmup: int, total: int) -> float:
    return step / max(1, warmup) if step < warmup else (total - step) / max(1, total - warmup)


@pytest.mark.parametrize(
    ("make", "claim", "message"),
    [
        (late, "LRS-PEAK-001", "the greatest rate is first reached in step 2, one step late"),
        (unlimited, "LRS-RANGE-001", "the rate is -0.*in step"),
        (
            lambda step, warmup, total: step / warmup,
            "LRS-EDGE-001",
            "without warm-up of .* steps, the schedule divides by zero",
        ),
        (
            lambda optimizer, warmup, total: LambdaLR(optimizer, lambda step: linear(step, warmup, total) / 2),
            "LRS-PEAK-001",
            "the greatest rate is .*; the peak is",
        ),
        (Forgets, "LRS-STATE-001", "is the rate of a schedule that starts anew"),
    ],
)
def test_wrong_schedules_are_refuted(make: Callable[..., Any], claim: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        TESTS[claim](bench=Bench(make))


def test_schedule_of_the_suite_refuses_a_warmup_longer_than_the_schedule() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    WarmupCosine(optimizer, 4, 4)
    with pytest.raises(ValueError, match="invalid value 5 for 'warmup': expected at most 4, the value of 'total'"):
        WarmupCosine(optimizer, 5, 4)
