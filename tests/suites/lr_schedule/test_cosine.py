import pytest
import torch
from torch import nn

from pv.suites.lr_schedule.cosine import WarmupCosine, factor


def test_factor_rises_to_the_peak_and_falls_to_the_minimum() -> None:
    assert [factor(step, 2, 6, 0.2) for step in (0, 1, 2, 4, 6, 9)] == pytest.approx([0, 0.5, 1, 0.6, 0.2, 0.2])
    assert factor(0, 0, 0, 0.2) == 0.2


def test_each_group_keeps_its_proportion() -> None:
    groups = [{"params": [nn.Parameter(torch.ones(1))], "lr": lr} for lr in (1.0, 0.5)]
    schedule = WarmupCosine(torch.optim.SGD(groups), 2, 6)
    schedule.step()
    assert [group["lr"] for group in schedule.optimizer.param_groups] == [0.5, 0.25]
