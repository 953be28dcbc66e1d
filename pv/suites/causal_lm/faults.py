"""Faults of the suite's own model that no edit of one expression makes. `original` is the replaced function."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

Positions = Callable[[Tensor | None, Tensor, int], Tensor]


def padding_is_counted(original: Positions, explicit: Tensor | None, mask: Tensor, past: int) -> Tensor:
    return original(None, torch.ones_like(mask), past)


def positions_start_again(original: Positions, explicit: Tensor | None, mask: Tensor, past: int) -> Tensor:
    return original(explicit, mask[:, past:], 0)


def untied(
    original: Callable[..., object],
    self: nn.Module,
    state_dict: Mapping[str, Tensor],
    strict: bool = True,
    assign: bool = False,
) -> object:
    """Give each name a parameter of its own."""
    return original(self, {name: tensor.clone() for name, tensor in state_dict.items()}, strict, assign=True)
