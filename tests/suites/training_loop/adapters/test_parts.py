from collections.abc import Callable

import pytest
import torch
from torch import nn

from pv.suites.training_loop.adapters.parts import factor, optimizer_of, scheduler_of
from pv.suites.training_loop.job import Job

Jobs = Callable[..., Job]


def test_schedule_rises_in_the_warmup_and_falls_to_zero_at_the_end(job: Jobs) -> None:
    found = [factor(job(schedule="linear", warmup=2), done, planned=6) for done in range(7)]
    assert found == [0.0, 0.5, 1.0, 0.75, 0.5, 0.25, 0.0]


def test_constant_schedule_has_the_warmup_too(job: Jobs) -> None:
    assert [factor(job(warmup=2), done, planned=6) for done in range(4)] == [0.0, 0.5, 1.0, 1.0]


def test_scheduler_of_two_ranks_advances_after_two_calls(job: Jobs) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, rates = scheduler_of(job(schedule="linear"), optimizer, 2, ranks=2), []
    for _ in range(4):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates == [1.0, 1.0, 0.5, 0.5]


@pytest.mark.parametrize(("name", "kind"), [("sgd", torch.optim.SGD), ("adamw", torch.optim.AdamW)])
def test_optimizer_holds_what_is_trained(job: Jobs, name: str, kind: type) -> None:
    optimizer = optimizer_of(job(optimizer=name), job(frozen=True).model().parameters())
    assert isinstance(optimizer, kind)
    assert sum(each.numel() for each in optimizer.param_groups[0]["params"]) == 48 * 5
