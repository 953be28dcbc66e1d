"""Models that are no part of the suite: a correct one with its own way to fail in each claim, and small variants."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH = 32


class Written(nn.Module):
    """A model with learned positions, initial weights of 0.02, a tied head, and switches for faults."""

    diagonal = counted = cache_off = 0
    shift = 1
    masks = isolates = True
    dropped = normed = unties = False

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(40, WIDTH), nn.Embedding(64, WIDTH)
        self.parts, self.head = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 40, bias=False)
        self.head.weight = self.embed.weight
        for each in self.parameters():
            nn.init.normal_(each, std=0.02)

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        if self.unties:
            self.head.weight = nn.Parameter(self.head.weight.detach().clone())
        return super().load_state_dict(state_dict, strict, assign)

    def forward(
        self,
        ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        labels: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool = False,
    ) -> SimpleNamespace:
        past = past_key_values[0].shape[1] if past_key_values else 0
        keys = past + ids.shape[1]
        if position_ids is None or self.counted:
            position_ids = torch.arange(past, keys) + (self.cache_off if past else 0)
        x = self.embed(ids) + self.place(position_ids)
        x = x - x.mean(dim=0) if self.normed else x
        q, k, v = self.parts(F.dropout(x, 0.1, self.dropped)).chunk(3, dim=-1)
        if past:
            k, v = torch.cat([past_key_values[0], k], dim=1), torch.cat([past_key_values[1], v], dim=1)
        seen = torch.ones(1, len(q[0]), keys, dtype=torch.bool).tril(past + self.diagonal)
        if attention_mask is not None and self.masks:
            seen = seen & attention_mask.bool()[:, None]
        if document_ids is not None and self.isolates:
            seen = seen & (document_ids[:, :, None] == document_ids[:, None])
        logits = self.head(x + (q @ k.mT).masked_fill(~seen, -1e9).softmax(dim=-1) @ v)
        loss = None
        if labels is not None:
            end = ids.shape[1] - self.shift
            loss = F.cross_entropy(logits[:, :end].flatten(0, 1), labels[:, self.shift :].flatten())
        return SimpleNamespace(logits=logits, loss=loss, past_key_values=(k, v) if use_cache else None)


class Plain(Written):
    """A forward of tokens and labels alone, which returns a tuple."""

    def forward(self, ids: Tensor, labels: Tensor | None = None) -> Any:  # type: ignore[override]
        output = super().forward(ids, labels=labels)
        return output.logits, output.loss


class BoolMask(Written):
    """Learned positions that padding moves, and a mask that has to be bool."""

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Any:  # type: ignore[override]
        if attention_mask is not None and attention_mask.dtype is not torch.bool:
            raise ValueError("attention_mask must be bool")
        return super().forward(ids, attention_mask).logits


class LastToken(Written):
    """The logits of the last token alone."""

    def forward(self, ids: Tensor) -> Any:  # type: ignore[override]
        return super().forward(ids).logits[:, -1:]


class Broken(Plain):
    """A forward that does not take the labels of the suite."""

    def forward(self, ids: Tensor, labels: Tensor | None = None) -> Any:
        if labels is not None:
            raise ValueError("labels must be one-hot")
        return super().forward(ids)
