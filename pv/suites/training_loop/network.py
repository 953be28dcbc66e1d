"""The interface for networks that a trainer creates itself, and a correct network for the loop of the suite."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

PAD = 0
"""The token id of padding."""
WIDTH, TOKENS, POSITIONS = 8, 16, 32
"""The width of hidden states, and the numbers of tokens and of positions."""


class WithNetwork(Protocol):
    """An adapter that also provides the trainer's own network.

    Every method belongs to a feature, which its description names in parentheses. An adapter needs the methods of the
    features that it sets to True.

    Attributes:
        tokens: Token ids of the network's vocabulary, without padding.
        frozen: Patterns, as for `fnmatch`, of the names of parameters that must not be trained.
        tied: Optional. Pairs of names of tied parameters. Parameters with equal initial values need not be named.
    """

    tokens: Sequence[int]
    frozen: Sequence[str]

    def network(self) -> nn.Module:
        """Return the network that the loop trains. Every call returns it in the same state (`network`)."""
        ...

    def logits(self, network: nn.Module, rows: Sequence[Sequence[int]]) -> Sequence[Tensor]:
        """Return the logits [T, V] of each row in eval mode. The loop's collator makes one batch (`network`)."""
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
        """Return the loss of a batch, without changing the mode of the network (`network_loss`).

        Args:
            network: The network.
            rows: The token ids of each row.
            checkpointing: Whether activations are recomputed in the backward pass (`checkpointing`).
            autocast: Whether the forward runs under autocast to bfloat16 (`autocast`).
        """
        ...


class Attention(nn.Module):
    """A causal language model: an embedding with frozen positions, one attention layer, and a tied head."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.embed, self.position = nn.Embedding(TOKENS, WIDTH), positions()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.drop, self.norm, self.head = nn.Dropout(0.5), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, TOKENS)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        tie(self.head, self.embed)
        freeze(self.position)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return logits [B, T, V] of ids [B, T], which are padding where the mask [B, T] is False."""
        # The cumulative sum of the mask counts tokens and not padding.
        hidden = self.drop(self.embed(ids) * self.scale + self.position((mask.cumsum(1) - 1).clamp(min=0)))
        # -1e9 instead of -inf: at a position that sees no position, the softmax would be 0 / 0.
        scores = (hidden @ hidden.transpose(1, 2)).masked_fill(~visible(mask), -1e9)
        logits: Tensor = self.head(self.norm(hidden + scores.softmax(-1) @ hidden))
        return logits


def positions() -> nn.Embedding:
    """Return the position embedding. With a `max_norm`, its forward would renormalize rows although it is frozen."""
    return nn.Embedding(POSITIONS, WIDTH, max_norm=None)


def tie(head: nn.Linear, embed: nn.Embedding) -> None:
    """Tie the weights: use the parameter of the embedding as the weight of the head."""
    head.weight = embed.weight


def freeze(module: nn.Module) -> None:
    """Freeze the parameters of a module, and put it in eval mode."""
    module.requires_grad_(False)
    module.eval()


def visible(mask: Tensor) -> Tensor:
    """Return whether a position sees another one, as a bool mask [B, T, T]: earlier and equal ones, but no padding."""
    return causal(torch.ones(mask.shape[1], mask.shape[1], dtype=torch.bool)) & mask[:, None, :]


def causal(square: Tensor) -> Tensor:
    """Return a mask [T, T] without its entries for later positions."""
    return square.tril()


def left_padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Pad rows on the left, and return their ids [B, T] and a mask [B, T] that is False for padding."""
    width = max(map(len, rows))
    ids = torch.tensor([[PAD] * (width - len(row)) + [*row] for row in rows])
    return ids, torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])


def logits_of(network: nn.Module, rows: Sequence[Sequence[int]]) -> list[Tensor]:
    """Return the logits [T, V] of each row, computed in one batch. Put the network in eval mode."""
    ids, mask = left_padded(rows)
    network.eval()
    with torch.no_grad():
        logits = network(ids, mask)
    return [row_logits[-len(row) :] for row_logits, row in zip(logits, rows, strict=True)]


def loss_of(network: nn.Module, rows: Sequence[Sequence[int]], *, checkpointing: bool, autocast: bool) -> Tensor:
    """Return the cross-entropy of a batch in nats: the mean over all tokens but the first of each row."""
    ids, mask = left_padded(rows)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits = recomputed(network, ids, mask) if checkpointing else network(ids, mask)
    return mean_loss(logits, ids, mask)


def recomputed(network: nn.Module, ids: Tensor, mask: Tensor) -> Tensor:
    """Return logits [B, T, V] with activation checkpointing: activations are recomputed in the backward pass."""
    # The reentrant variant needs an input that requires a gradient, but token ids are integers.
    logits: Tensor = checkpoint(network, ids, mask, use_reentrant=False)
    return logits


def mean_loss(logits: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
    """Return the mean cross-entropy in nats over the scored tokens. Logits [B, T, V] are converted to float32."""
    # A token is scored if neither the token nor its predecessor is padding.
    scored = mask[:, :-1] & mask[:, 1:]
    return cross_entropy(logits.float()[:, :-1][scored], ids[:, 1:][scored])


class OwnNetwork:
    """The part of an adapter that provides `Attention` as the trainer's network."""

    tokens: Sequence[int] = range(1, TOKENS)
    frozen: Sequence[str] = ("position.*",)

    def network(self) -> nn.Module:
        """Return a new network."""
        return Attention()

    def logits(self, network: nn.Module, rows: Sequence[Sequence[int]]) -> Sequence[Tensor]:
        """Return the logits of each row in eval mode."""
        return logits_of(network, rows)

    def network_loss(
        self, network: nn.Module, rows: Sequence[Sequence[int]], *, checkpointing: bool, autocast: bool
    ) -> Tensor:
        """Return the loss of a batch."""
        return loss_of(network, rows, checkpointing=checkpointing, autocast=autocast)
