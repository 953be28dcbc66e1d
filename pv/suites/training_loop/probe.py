"""The model that every trainer trains: it notes which examples pass through it."""

from collections.abc import Collection

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pv.suites.training_loop.recording import recorder

PAD, NAMES, TEXT, VOCABULARY = 0, (1, 32), (32, 48), 48
"""Token 0 is padding, 1 to 31 name an example, 32 to 47 are text."""
WIDTH = 4


class Probe(nn.Module):
    """A causal model in float64: an embedding, tanh, dropout, a head. Positions do not mix.

    The first token of a row that is not padding is the name of the example, so that it is known behind every collator,
    sampler and wrapper.
    broken: the forwards in eval mode, from 0, that return NaN. overflows: those in training mode, from 0, whose
    gradient is infinite.
    """

    def __init__(
        self,
        *,
        dropout: float = 0.0,
        frozen: bool = False,
        silent: bool = False,
        tied: bool = False,
        broken: Collection[int] = (),
        overflows: Collection[int] = (),
    ) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(12345)
        self.silent, self.broken, self.evaluated = silent, broken, 0
        self.overflows, self.trained = overflows, 0
        self.embed = nn.Embedding(VOCABULARY, WIDTH, dtype=torch.float64)
        self.head = nn.Linear(WIDTH, VOCABULARY, dtype=torch.float64)
        self.drop = nn.Dropout(dropout)
        with torch.no_grad():
            for each in self.parameters():
                each.copy_(torch.randn(each.shape, generator=draw, dtype=torch.float64))
        self.embed.weight.requires_grad_(not frozen)
        if tied:
            self.head.weight = self.embed.weight

    def hidden(self, input_ids: Tensor) -> Tensor:
        """Return the hidden states [B, T, width] of token ids [B, T]."""
        if not self.silent:
            recorder().note_forward(names(input_ids), self.training, input_ids.shape[-1])
        hidden: Tensor = self.drop(torch.tanh(self.embed(input_ids)))
        self.evaluated += not self.training
        self._watch_gradient(hidden)
        return hidden * torch.nan if not self.training and self.evaluated - 1 in self.broken else hidden

    def _watch_gradient(self, hidden: Tensor) -> None:
        """Note the gradient [B, T, width] of hidden states, which a gradient scaler has scaled."""
        if self.silent or not self.training or not hidden.requires_grad:
            return
        factor = torch.inf if self.trained in self.overflows else 1.0
        self.trained += 1
        hidden.register_hook(lambda gradient: recorder().note_gradient(gradient * factor))

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return logits [B, T, V] of token ids [B, T]. A mask is noted, and changes nothing: positions do not mix."""
        if self.training and not self.silent:
            recorder().note_mask(input_ids, attention_mask)
        logits: Tensor = self.head(self.hidden(input_ids))
        return logits


def names(input_ids: Tensor) -> list[int]:
    """Return the first token of each row of token ids [B, T] that is not padding, of the rows that have one."""
    rows = [[token for token in row if token != PAD] for row in input_ids.tolist()]
    return [row[0] for row in rows if row]


def token_loss(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """Return the cross-entropy in nats of logits [B, T, V] with unshifted labels [B, T], shifted once here."""
    return cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction=reduction)
