"""Attacks on the size of a snapshot. The subject is `storage.snapshot`, or has its names."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn


class Sized(nn.Module):
    """Shared weights, a buffer that is saved and one that is not, and `frozen` of its parameters without gradients."""

    def __init__(self, width: int, frozen: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, 3, dtype=dtype), nn.Linear(width, 3, bias=False, dtype=dtype)
        self.second.weight = self.first.weight
        self.scale = nn.Parameter(torch.ones((), dtype=torch.float32))
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("cache", torch.zeros(1000), persistent=False)
        for each in list(self.parameters())[:frozen]:
            each.requires_grad_(False)


@given(
    width=st.integers(1, 9),
    frozen=st.integers(0, 2),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    steps=st.integers(1, 2),
)
def falsify_size_is_known_before_the_training(
    subject: Any, width: int, frozen: int, dtype: torch.dtype, steps: int
) -> None:
    module = Sized(width, frozen, dtype)
    optimizer = torch.optim.AdamW(module.parameters())
    told = sorted(map(_kind, subject.expected_tensors(module)))
    for _ in range(steps):
        for each in module.parameters():
            each.grad = torch.ones_like(each) if each.requires_grad else None
        optimizer.step()
    expected = sorted(map(_kind, subject.snapshot({"student": module}, optimizer).tensors.values()))
    assert told == expected, f"a snapshot is said to have {told}; it has {expected}"


def _kind(tensor: Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"
