"""Attacks on weights in fewer bits than float32. The subject is `training.update`.

The oracle is AdamW in float64 on Python numbers, from the weights as they are stored.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

RATE, DECAY, FIRST, SECOND, EPSILON = 1e-3, 0.01, 0.9, 0.999, 1e-8
ALLOWED = 1e-5
"""Decay and update round a float32 weight near 1 by 6e-8 each, in each of 40 steps."""


def _oracle(weight: float, gradients: list[float], decay: float) -> float:
    mean = square = 0.0
    for step, each in enumerate(gradients, 1):
        mean, square = FIRST * mean + (1 - FIRST) * each, SECOND * square + (1 - SECOND) * each**2
        moved = mean / (1 - FIRST**step) / (math.sqrt(square / (1 - SECOND**step)) + EPSILON)
        weight -= RATE * decay * weight + RATE * moved
    return weight


@given(
    weights=st.lists(st.sampled_from([-1.0, -0.5, 0.75, 1.0]), min_size=1, max_size=3),
    gradients=st.lists(st.sampled_from([0.0078125, 0.5, 2.0, -0.25]), min_size=8, max_size=40),
    decays=st.booleans(),
    dtype=st.sampled_from([torch.bfloat16, torch.float16]),
)
def falsify_small_updates_are_not_lost(
    subject: Any, device: str, weights: list[float], gradients: list[float], decays: bool, dtype: torch.dtype
) -> None:
    """A step of this rate is at most a quarter of the distance between numbers of bfloat16 near 1."""
    parameter = nn.Parameter(torch.tensor(weights, dtype=dtype, device=device))
    kept = frozenset() if decays else {parameter}
    optimizer = subject.new_optimizer([parameter], RATE, undecayed=kept, masters=True)
    for each in gradients:
        parameter.grad = torch.full_like(parameter, each)
        optimizer.step()
    wanted = [_oracle(weight, gradients, DECAY if decays else 0.0) for weight in weights]
    masters = optimizer.state[parameter]["master"].tolist()
    worst = max(abs(found - value) for found, value in zip(masters, wanted, strict=True))
    assert worst <= ALLOWED, f"after {len(gradients)} steps the weights are {masters}; expected {wanted}"
    rounded = torch.tensor(masters, dtype=torch.float32).to(dtype).tolist()
    assert parameter.tolist() == rounded, f"the model has {parameter.tolist()}, the rounded masters are {rounded}"
