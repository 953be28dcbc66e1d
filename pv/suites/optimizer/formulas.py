"""Steps of optimizers in float64, from the papers' formulas, and the same with known mistakes."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

Settings: TypeAlias = Sequence[Mapping[str, Any]]
Formula: TypeAlias = Callable[[Tensor, Sequence[Tensor], Settings], Tensor]
"""Returns a weight after steps, of its start, the gradients and the settings of its group in each step."""

RELATIVE = 2e-4  # of the change: 1 - 0.999 in float32 is off by 3e-5
ULPS = 4  # of the weight, in a step


def sgd(weight: Tensor, gradients: Sequence[Tensor], settings: Settings, *, damped_first: bool = False) -> Tensor:
    """Follow the documentation of torch.optim.SGD: the first gradient enters the buffer undamped."""
    buffer = None
    for gradient, group in zip(gradients, settings, strict=True):
        # v = momentum v + (1 - dampening) g; with Nesterov the step is g + momentum v (Sutskever et al. 2013, as
        # PyTorch writes it).
        momentum, kept = group.get("momentum", 0), 1 - group.get("dampening", 0)
        gradient = (-gradient if group.get("maximize") else gradient) + group.get("weight_decay", 0) * weight
        if buffer is None:
            buffer = gradient * (kept if damped_first else 1)
        else:
            buffer = momentum * buffer + kept * gradient
        if momentum:
            gradient = gradient + momentum * buffer if group.get("nesterov") else buffer
        weight = weight - group["lr"] * gradient
    return weight


def adam(
    weight: Tensor, gradients: Sequence[Tensor], settings: Settings, *, decoupled: bool, shift: int = 0, eps: str = ""
) -> Tensor:
    """Follow Kingma and Ba 2015, algorithm 1; decoupled: Loshchilov and Hutter 2019, algorithm 2, with a rate of 1.

    Mistakes: shift of the step in the bias correction (-1: none); eps `inside` the root or `before` the correction.
    """
    mean = square = torch.zeros_like(weight)
    for step, (gradient, group) in enumerate(zip(gradients, settings, strict=True), 1):
        (beta1, beta2), rate, decay = group["betas"], group["lr"], group.get("weight_decay", 0)
        gradient = (-gradient if group.get("maximize") else gradient) + (0 if decoupled else decay * weight)
        weight = weight * (1 - rate * decay) if decoupled else weight
        mean, square = beta1 * mean + (1 - beta1) * gradient, beta2 * square + (1 - beta2) * gradient**2
        # The averages start at 0; dividing by 1 - beta^t removes that bias.
        one, two = (1.0, 1.0) if shift < 0 else (1 - beta1 ** (step + shift), 1 - beta2 ** (step + shift))
        root = (square / two + (group["eps"] if eps == "inside" else 0)).sqrt()
        added = {"": group["eps"], "inside": 0, "before": group["eps"] / two**0.5}[eps]
        weight = weight - rate * (mean / one) / (root + added)
    return weight


FORMULAS: dict[str, Formula] = {
    "sgd": sgd,
    "adam": partial(adam, decoupled=False),
    "adamw": partial(adam, decoupled=True),
}
_OF_ADAM: dict[str, dict[str, Any]] = {
    "the bias correction of the next step": {"shift": 1},
    "no bias correction": {"shift": -1},
    "epsilon inside the root": {"eps": "inside"},
    "epsilon added before the bias correction": {"eps": "before"},
}
MISTAKES: dict[str, dict[str, dict[str, Any]]] = {
    "sgd": {"dampening of the first gradient": {"damped_first": True}},
    "adam": {**_OF_ADAM, "decoupled weight decay": {"decoupled": True}},
    "adamw": {**_OF_ADAM, "weight decay that is added to the gradient": {"decoupled": False}},
}


def close(actual: Tensor, right: Tensor, start: Tensor, steps: int) -> bool:
    """Return whether weights are equal within the rounding of `steps` steps in float32."""
    rounding = ULPS * steps * torch.finfo(torch.float32).eps * float(start.abs().max())
    # Relative to the change, not to the weight: a wrong step is small beside the weight.
    allowed = RELATIVE * float((right - start).abs().max()) + rounding
    return float((actual - right).abs().max()) <= allowed  # False for NaN
