"""Faults of the suite's own model that no edit of one expression makes. `original` is the replaced function."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Loss = Callable[[Tensor, Tensor], Tensor]
Positions = Callable[[Tensor | None, Tensor, int], Tensor]


def padding_is_counted(original: Positions, given: Tensor | None, mask: Tensor, past: int) -> Tensor:
    return original(None, torch.ones_like(mask), past)


def positions_start_again(original: Positions, given: Tensor | None, mask: Tensor, past: int) -> Tensor:
    return original(given, mask[:, past:], 0)


def mean_of_rows(original: Loss, logits: Tensor, labels: Tensor) -> Tensor:
    """Average the means of the rows that predict a token."""
    rows = [k for k, row in enumerate(labels) if (row[1:] != -100).any()]
    return torch.stack([original(logits[k : k + 1], labels[k : k + 1]) for k in rows]).mean()


def counted(original: Loss, logits: Tensor, labels: Tensor) -> Tensor:
    """Divide by all tokens, ignored ones included."""
    return original(logits, labels) * (labels[:, 1:] != -100).float().mean()


def untied(original: Any, self: nn.Module, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
    """Give each name a parameter of its own."""
    return original(self, {name: each.clone() for name, each in state_dict.items()}, strict, assign=True)
