"""A fault that no edit of one expression makes. `original` is the replaced function."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Of = Callable[[torch.optim.Optimizer, Tensor], dict[str, Any]]


def counts_parameters(original: Of, optimizer: torch.optim.Optimizer, weight: Tensor) -> dict[str, Any]:
    """Count the step of a parameter as one of all parameters."""
    state = original(optimizer, weight)
    state["step"] = max((each.get("step", 0) for each in optimizer.state.values()), default=0)
    return state
