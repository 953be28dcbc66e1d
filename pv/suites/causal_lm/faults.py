"""Faults of the subject of the contract that are too large for an edit of one expression.

Each function is a fault, and replaces a function or method of the model. Its argument `original` is the replaced
function; the other arguments are the arguments of the replaced function.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

Positions = Callable[[Tensor | None, Tensor, int], Tensor]


def padding_is_counted(original: Positions, explicit: Tensor | None, mask: Tensor, past: int) -> Tensor:
    """Count padding in the positions, and ignore the positions that are passed."""
    return original(None, torch.ones_like(mask), past)


def positions_start_again(original: Positions, explicit: Tensor | None, mask: Tensor, past: int) -> Tensor:
    """Count positions from 0 after the cached tokens."""
    return original(explicit, mask[:, past:], 0)


def untied(
    original: Callable[..., object],
    self: nn.Module,
    state_dict: Mapping[str, Tensor],
    strict: bool = True,
    assign: bool = False,
) -> object:
    """Load a separate parameter for each name, so that tied weights are no longer shared."""
    return original(self, {name: tensor.clone() for name, tensor in state_dict.items()}, strict, assign=True)
