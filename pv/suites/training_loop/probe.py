"""The model that every trainer trains: it records which examples pass through it."""

import math
from collections.abc import Collection, Mapping

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
    gradient is infinite. not_finite: by such a forward, what its loss is: NaN or infinity.
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
        not_finite: Mapping[int, float] | None = None,
    ) -> None:
        super().__init__()
        # A generator of its own: the global one belongs to the trainer.
        draw = torch.Generator().manual_seed(12345)
        self.silent, self.broken, self.evaluated = silent, broken, 0
        self.overflows, self.not_finite, self.trained = overflows, not_finite or {}, 0
        self.embed = nn.Embedding(VOCABULARY, WIDTH, dtype=torch.float64)
        self.head = nn.Linear(WIDTH, VOCABULARY, dtype=torch.float64)
        self.drop = nn.Dropout(dropout)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=draw, dtype=torch.float64))
        self.embed.weight.requires_grad_(not frozen)
        if tied:
            self.head.weight = self.embed.weight

    def hidden(self, input_ids: Tensor) -> Tensor:
        """Return the hidden states [B, T, width] of token ids [B, T]."""
        if not self.silent:
            recorder().note_forward(names(input_ids), input_ids.shape[1], self.training)
        hidden: Tensor = self.drop(torch.tanh(self.embed(input_ids)))
        self.evaluated += not self.training
        self._watch_gradient(hidden)
        return hidden * torch.nan if not self.training and self.evaluated - 1 in self.broken else hidden

    def _watch_gradient(self, hidden: Tensor) -> None:
        """Note the gradient [B, T, width] of hidden states, which a gradient scaler has scaled."""
        if self.silent or not self.training or not hidden.requires_grad:
            return
        factor = torch.inf if self.trained in self.overflows or self.trained in self.not_finite else 1.0
        self.trained += 1
        # The gradient of hidden states is seen before any clipping or unscaling, so it has the scale of a scaler.
        hidden.register_hook(lambda gradient: recorder().note_gradient(gradient * factor))

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return logits [B, T, V] of token ids [B, T]. A mask is noted, and changes nothing: positions do not mix."""
        if self.training and not self.silent:
            recorder().note_mask(input_ids, attention_mask)
        logits: Tensor = self.head(self.hidden(input_ids))
        loss = self.not_finite.get(self.trained - 1) if self.training and logits.requires_grad else None
        if loss is None:
            return logits
        if math.isnan(loss):
            return logits * math.nan
        # An infinite loss must come from the logits, since the loop computes the loss.
        impossible = torch.zeros(VOCABULARY)
        # All labels are tokens of the text: without probability, their loss is infinite.
        impossible[slice(*TEXT)] = math.inf
        return logits - impossible


def names(input_ids: Tensor) -> list[int]:
    """Return the first token of each row of token ids [B, T] that is not padding, of the rows that have one."""
    rows = [[token for token in row if token != PAD] for row in input_ids.tolist()]
    return [row[0] for row in rows if row]


def token_loss(logits: Tensor, labels: Tensor, reduction: str = "mean", smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy in nats of logits [B, T, V] with unshifted labels [B, T], shifted once here.

    smoothing: the part of each label that is spread over all tokens of the vocabulary.
    """
    rows, targets = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    return cross_entropy(rows, targets, ignore_index=-100, reduction=reduction, label_smoothing=smoothing)
