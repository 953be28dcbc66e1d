"""The suite's own subject: a correct causal language model that takes every argument that the suite can pass."""

from collections.abc import Mapping
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, VOCABULARY, POSITIONS = 16, 13, 32
"""The width of the hidden states, the size of the vocabulary, and the largest number of positions."""


class CausalLM(nn.Module):
    """One layer of attention with learned positions and a tied head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.projections, self.head = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        segments: Tensor | None = None,
        labels: Tensor | None = None,
        past_key_values: tuple[Tensor, Tensor] | None = None,
        use_cache: bool = False,
    ) -> SimpleNamespace:
        """Return logits [N, T, V], the loss (None without labels), and the cache (None unless `use_cache` is set).

        Args:
            input_ids: Token ids [N, T].
            attention_mask: 0 for padding, [N, past + T]; None for no padding.
            position_ids: Positions [N, T]; None to compute them from `attention_mask`.
            segments: For each token, the number of its packed document [N, T]; None for one document per row.
            labels: Unshifted labels [N, T].
            past_key_values: The keys and values [N, past, WIDTH] of the earlier tokens.
            use_cache: Whether to return the cache.
        """
        past = past_key_values[0].shape[1] if past_key_values else 0
        mask = torch.ones(len(input_ids), past + input_ids.shape[1]) if attention_mask is None else attention_mask
        x = self.embed(input_ids) + self.position(positions(position_ids, mask, past))
        q, k, v = self.projections(dropout(normalize(x), self.training)).chunk(3, dim=-1)
        if past_key_values:
            k, v = torch.cat([past_key_values[0], k], dim=1), torch.cat([past_key_values[1], v], dim=1)
        # With a cache, there are more keys than queries. The queries belong to the last positions.
        visible = causal(q.shape[1], k.shape[1]) & key_mask(mask)
        visible = visible if segments is None else visible & same_document(segments)
        logits = self.head(x + (q @ k.mT).masked_fill(~visible, -1e9).softmax(dim=-1) @ v)
        loss = None if labels is None else token_loss(logits, labels)
        return SimpleNamespace(logits=logits, loss=loss, past_key_values=(k, v) if use_cache else None)

    def load_state_dict(self, state_dict: Mapping[str, object], strict: bool = True, assign: bool = False) -> object:
        return super().load_state_dict(state_dict, strict, assign)


def positions(explicit: Tensor | None, mask: Tensor, past: int) -> Tensor:
    """Return the positions of the tokens that are not cached. Computed positions do not count padding.

    Args:
        explicit: Positions [N, T] to return without change; None to compute the positions.
        mask: The mask [N, past + T], 0 for padding.
        past: The number of cached tokens.
    """
    # The cumulative sum of the mask counts the tokens, but not the padding before them.
    return explicit if explicit is not None else (mask.long().cumsum(dim=1) - 1).clamp(min=0)[:, past:]


def normalize(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def dropout(x: Tensor, training: bool) -> Tensor:
    return F.dropout(x, 0.1, training)


def causal(queries: int, keys: int) -> Tensor:
    """Return the mask [queries, keys] of the keys that a query may attend to; queries belong to the last positions."""
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)


def key_mask(mask: Tensor) -> Tensor:
    """Return the mask [N, 1, keys] of the keys that are not padding."""
    return mask[:, None, :] > 0


def same_document(segments: Tensor) -> Tensor:
    """Return the mask [N, T, T] of the pairs of positions in the same document."""
    return segments[:, :, None] == segments[:, None, :]


def token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy in nats of the next tokens; a label of -100 does not count."""
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
