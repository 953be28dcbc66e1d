"""One update of the optimizer of every run, as a function of its state: what the equation of AdamW is held against."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from reference_trainer.loop import new_optimizer


def updated(weights: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, *, step: int, rate: float) -> list[Tensor]:
    """The weights after optimizer step `step`, and the two moments, which were `mean` and `square` before it."""
    parameter = nn.Parameter(weights.clone())
    optimizer = new_optimizer([parameter], rate)
    moments = {"exp_avg": mean.clone(), "exp_avg_sq": square.clone()}
    optimizer.state[parameter] = {"step": torch.tensor(step - 1.0), **moments}
    parameter.grad = gradient.clone()
    optimizer.step()
    state = optimizer.state[parameter]
    return [parameter.detach(), state["exp_avg"], state["exp_avg_sq"]]
