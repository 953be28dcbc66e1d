"""The interface for networks that a trainer itself creates, and a correct network for the suite's loop."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

PAD = 0
WIDTH = 8


class WithNetwork(Protocol):
    """An adapter that also offers its own network, by the methods of the features that it sets to True.

    tokens: of its vocabulary, none of which is padding. frozen: patterns of the names of parameters that are not to be
    trained. tied: not required; pairs of names that are to be one parameter, where that cannot be seen in the network.
    """

    tokens: Sequence[int]
    frozen: Sequence[str]

    def network(self) -> nn.Module:
        """Return the network as the loop trains it, in the same state in each call (`network`)."""
        ...

    def logits(self, network: nn.Module, rows: Sequence[Sequence[int]]) -> Sequence[Tensor]:
        """Return the logits [T, V] of each row in eval mode, from one batch of the loop's collator (`network`)."""
        ...

    def network_optimizer(self, network: nn.Module) -> Optimizer:
        """Return the loop's optimizer of a network, with weight decay (`network_optimizer`)."""
        ...

    def evaluate_network(self, network: nn.Module) -> None:
        """Evaluate a network as the loop does between two steps (`network_evaluation`)."""
        ...

    def network_loss(
        self, network: nn.Module, rows: Sequence[Sequence[int]], *, checkpointing: bool, autocast: bool
    ) -> Tensor:
        """Return the loss of a batch in the mode that the network is in (`network_loss`).

        checkpointing: activations are computed again in the backward (`checkpointing`). autocast: in bfloat16
        (`autocast`).
        """
        ...


class Attention(nn.Module):
    """A causal attention layer, between embeddings with fixed positions and a head."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(1)
        self.embed, self.position = nn.Embedding(16, WIDTH), positions()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.drop, self.norm, self.head = nn.Dropout(0.5), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 16)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=draw))
        tie(self.head, self.embed)
        freeze(self.position)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return logits [B, T, V] of ids [B, T], padded where the mask [B, T] is False."""
        # Positions count tokens, not padding: a cumulative sum of the mask.
        hidden = self.drop(self.embed(ids) * self.scale + self.position((mask.cumsum(1) - 1).clamp(min=0)))
        # -1e9 and not -inf: a row that sees nothing would be 0 / 0.
        scores = (hidden @ hidden.transpose(1, 2)).masked_fill(~visible(mask), -1e9)
        logits: Tensor = self.head(self.norm(hidden + scores.softmax(-1) @ hidden))
        return logits


def positions() -> nn.Embedding:
    """Return the embedding of positions, whose rows are not renormalised."""
    return nn.Embedding(32, WIDTH, max_norm=None)


def tie(head: nn.Linear, embed: nn.Embedding) -> None:
    """Tie the weights: make the weight of the head the parameter of the embedding."""
    head.weight = embed.weight


def freeze(module: nn.Module) -> None:
    """Freeze the parameters of a module, and switch off its dropout."""
    module.requires_grad_(False)
    module.eval()


def visible(mask: Tensor) -> Tensor:
    """Return a mask, bool [B, T, T], of the visible positions: the position itself and earlier ones without padding."""
    return causal(torch.ones(mask.shape[1], mask.shape[1], dtype=torch.bool)) & mask[:, None, :]


def causal(square: Tensor) -> Tensor:
    """Return a mask [T, T] with later positions removed."""
    return square.tril()


def left_padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Return ids and mask [B, T] of rows that are padded on the left."""
    width = max(map(len, rows))
    ids = torch.tensor([[PAD] * (width - len(row)) + [*row] for row in rows])
    return ids, torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])


def logits_of(network: nn.Module, rows: Sequence[Sequence[int]]) -> list[Tensor]:
    """Return the logits [T, V] of each row in eval mode, from one batch."""
    ids, mask = left_padded(rows)
    network.eval()
    with torch.no_grad():
        logits = network(ids, mask)
    return [logit[-len(row) :] for logit, row in zip(logits, rows, strict=True)]


def loss_of(network: nn.Module, rows: Sequence[Sequence[int]], *, checkpointing: bool, autocast: bool) -> Tensor:
    """Return the cross-entropy in nats, as the mean over the tokens with a preceding token."""
    ids, mask = left_padded(rows)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits = recomputed(network, ids, mask) if checkpointing else network(ids, mask)
    return mean_loss(logits, ids, mask)


def recomputed(network: nn.Module, ids: Tensor, mask: Tensor) -> Tensor:
    """Return logits with activation checkpointing: activations are recomputed in the backward."""
    # The reentrant variant needs an input that requires a gradient, and token ids have none.
    logits: Tensor = checkpoint(network, ids, mask, use_reentrant=False)
    return logits


def mean_loss(logits: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
    """Return the cross-entropy in nats of logits [B, T, V], in float32, the mean over the scored tokens."""
    # A token is scored if neither the token nor its predecessor is padding.
    scored = mask[:, :-1] & mask[:, 1:]
    return cross_entropy(logits.float()[:, :-1][scored], ids[:, 1:][scored])


class OwnNetwork:
    """The part of an adapter that provides `Attention` as the trainer's network."""

    tokens: Sequence[int] = range(1, 16)
    frozen: Sequence[str] = ("position.*",)

    def network(self) -> nn.Module:
        """Return a network of the loop's own."""
        return Attention()

    def logits(self, network: nn.Module, rows: Sequence[Sequence[int]]) -> Sequence[Tensor]:
        """Return the logits of each row in eval mode."""
        return logits_of(network, rows)

    def network_loss(
        self, network: nn.Module, rows: Sequence[Sequence[int]], *, checkpointing: bool, autocast: bool
    ) -> Tensor:
        """Return the loss of a batch."""
        return loss_of(network, rows, checkpointing=checkpointing, autocast=autocast)
