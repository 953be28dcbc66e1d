"""A network of the trainer's own, on which claims about networks are tried, and a correct one."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

PAD = 0
WIDTH = 8


class WithNetwork(Protocol):
    """A trainer whose own network is tried, too.

    tokens: of its vocabulary, none of which is padding. frozen: patterns of the names of parameters that are not to be
    trained.
    """

    tokens: Sequence[int]
    frozen: Sequence[str]

    def network(self) -> nn.Module:
        """Return the network as the loop makes it, in the same state in each call."""
        ...

    def logits(self, network: nn.Module, rows: Sequence[Sequence[int]]) -> Sequence[Tensor]:
        """Return the logits [T, V] of each row in eval mode, from one batch that the loop's own collator makes."""
        ...


class Attention(nn.Module):
    """A causal layer of attention in float64 between embeddings with fixed positions and a head."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(1)
        self.embed = nn.Embedding(16, WIDTH, dtype=torch.float64)
        self.position = nn.Embedding(32, WIDTH, dtype=torch.float64)
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(WIDTH, 16, dtype=torch.float64)
        with torch.no_grad():
            for each in self.parameters():
                each.copy_(torch.randn(each.shape, generator=draw, dtype=torch.float64))
        freeze(self.position)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return logits [B, T, V] of ids [B, T], padded where the mask [B, T] is False."""
        hidden = self.drop(self.embed(ids) + self.position((mask.cumsum(1) - 1).clamp(min=0)))
        scores = (hidden @ hidden.transpose(1, 2)).masked_fill(~visible(mask), -1e9)
        logits: Tensor = self.head(hidden + scores.softmax(-1) @ hidden)
        return logits


def freeze(module: nn.Module) -> None:
    """Take the parameters of a module out of the training."""
    module.requires_grad_(False)


def visible(mask: Tensor) -> Tensor:
    """Return which positions each position sees, bool [B, T, T]: itself and earlier ones that are no padding."""
    return causal(torch.ones(mask.shape[1], mask.shape[1], dtype=torch.bool)) & mask[:, None, :]


def causal(square: Tensor) -> Tensor:
    """Return a mask [T, T] without later positions."""
    return square.tril()


def logits_of(network: nn.Module, rows: Sequence[Sequence[int]]) -> list[Tensor]:
    """Return the logits [T, V] of each row in eval mode, from one batch that is padded on the left."""
    width = max(map(len, rows))
    ids = torch.tensor([[PAD] * (width - len(row)) + [*row] for row in rows])
    mask = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])
    network.eval()
    with torch.no_grad():
        logits = network(ids, mask)
    return [each[width - len(row) :] for each, row in zip(logits, rows, strict=True)]
