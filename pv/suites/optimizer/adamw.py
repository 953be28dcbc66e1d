"""The subject of the contract: AdamW by Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2.

The learning rate is the schedule multiplier of the paper, and the alpha of the paper is 1. So the learning rate also
multiplies the weight decay, as in PyTorch. Steps are computed by small functions, so that every mutant of the contract
edits one expression.
"""

from typing import Any, TypedDict

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

Group = dict[str, Any]


class State(TypedDict, total=False):
    """The state of a weight: the number of steps, and the moving averages of the gradient and of its square."""

    step: int
    mean: Tensor
    square: Tensor


class AdamW(torch.optim.Optimizer):
    """AdamW. Weights are updated one by one; with `foreach`, the weights of a group are updated together."""

    formula = "adamw"

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        foreach: bool = False,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]  # torch types a step by its closure
        for group in self.param_groups:
            weights, factors, changes = [], [], []
            for weight, gradient in gradients(group):
                state, rate = state_of(self, weight), rate_of(self, group)
                gradient, factor = apply_decay(gradient, weight, rate * group["weight_decay"], group["weight_decay"])
                advance(state, gradient, *group["betas"])
                weights.append(weight)
                factors.append(factor)
                changes.append(rate * direction(state, group["betas"], group["eps"]))
            (update_together if group["foreach"] else update)(weights, factors, changes)


def gradients(group: Group) -> list[tuple[Tensor, Tensor]]:
    """Return pairs of a parameter and its gradient, for the parameters of a group that have a gradient."""
    return [(weight, weight.grad) for weight in group["params"] if weight.grad is not None]


def state_of(optimizer: torch.optim.Optimizer, weight: Tensor) -> State:
    state: State = optimizer.state[weight]
    return state


def rate_of(optimizer: torch.optim.Optimizer, group: Group) -> float:
    return float(group["lr"])


def apply_decay(gradient: Tensor, weight: Tensor, shrink: float, decay: float) -> tuple[Tensor, float]:
    """Return the gradient for the moving averages, and the factor by which the decay multiplies the weight.

    The decay is decoupled: it does not change the gradient.

    Args:
        gradient: The gradient.
        weight: The weight; only mutants of the contract use it.
        shrink: The learning rate times the decay.
        decay: The weight decay; only mutants of the contract use it.
    """
    return (gradient, 1 - shrink)


def advance(state: State, gradient: Tensor, beta1: float, beta2: float) -> None:
    """Update the count of steps and the moving averages of a parameter."""
    state["step"] = state.get("step", 0) + 1
    # m = b1 m + (1 - b1) g and v = b2 v + (1 - b2) g^2, both from 0 (lines 7 and 8 of the algorithm).
    state["mean"] = beta1 * state.get("mean", 0) + (1 - beta1) * gradient
    state["square"] = beta2 * state.get("square", 0) + (1 - beta2) * gradient**2


def direction(state: State, betas: tuple[float, float], eps: float) -> Tensor:
    """Return the change of a weight per unit of the learning rate."""
    # m and v start at 0. m / (1 - b1^t) and v / (1 - b2^t) have no bias towards 0 (lines 9 and 10).
    mean = unbiased(state["mean"], betas[0], state["step"])
    return mean / denominator(unbiased(state["square"], betas[1], state["step"]), eps)


def unbiased(average: Tensor, beta: float, step: int) -> Tensor:
    return average / (1 - beta**step)


def denominator(square: Tensor, eps: float) -> Tensor:
    return square.sqrt() + eps


def update(weights: list[Tensor], factors: list[float], changes: list[Tensor]) -> None:
    for weight, factor, change in zip(weights, factors, changes, strict=True):
        weight.mul_(factor).sub_(change)


def update_together(weights: list[Tensor], factors: list[float], changes: list[Tensor]) -> None:
    torch._foreach_mul_(weights, factors)
    torch._foreach_sub_(weights, changes)
