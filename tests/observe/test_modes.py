"""Running statistics of frozen parts in a trace."""

import pytest

pytest.importorskip("torch", reason="the observer needs torch")

import torch

from pv.observe.modes import FrozenPart


def test_shift_of_a_frozen_part_leaves_out_replaced_layers() -> None:
    part = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.BatchNorm1d(2))
    part.get_buffer("1.running_mean").add_(5)
    frozen = FrozenPart(part, list(part), lambda tensor: tensor.detach())
    part[0] = torch.nn.Identity()
    frozen.update(set())
    assert frozen.shift_of_means() == 0
    part.get_buffer("1.running_mean").add_(3)
    assert frozen.shift_of_means() == pytest.approx(3, rel=1e-4)
    part[1] = torch.nn.Identity()
    frozen.update(set())
    assert frozen.shift_of_means() == 0
