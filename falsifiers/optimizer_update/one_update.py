"""One optimizer update as a function of its state: the subject that the equation of AdamW is checked against."""

import torch
from torch import Tensor, nn

from reference_trainer.training.update import new_optimizer


def updated(weights: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, *, step: int, rate: float) -> list[Tensor]:
    """Return weights that decay and both moments after optimizer step `step`; `mean` and `square` are those before."""
    parameter = nn.Parameter(weights.clone())
    optimizer = new_optimizer([parameter], rate)
    moments = {"exp_avg": mean.clone(), "exp_avg_sq": square.clone()}
    place = parameter.device if optimizer.param_groups[0]["fused"] else "cpu"  # as PyTorch makes it
    optimizer.state[parameter] = {"step": torch.tensor(step - 1.0, device=place), **moments}
    parameter.grad = gradient.clone()
    optimizer.step()
    state = optimizer.state[parameter]
    return [parameter.detach(), state["exp_avg"], state["exp_avg_sq"]]
