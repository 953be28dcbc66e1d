"""Attention within the documents of a packed row, one by one, so that no mask of length x length is formed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor

from reference_trainer.errors import SettingError
from reference_trainer.huggingface.models import Causal, bounds_of, equal_logits

__all__ = ["by_document", "check_isolation", "isolate_documents"]

NAME, SDPA = "by_document", "sdpa"
ISOLATED = 1e-3
"""Largest difference of a logit, relative to the largest one, between a document alone and one in a packed row."""


def by_document(attend: Callable[..., Tensor], query: Tensor, key: Tensor, value: Tensor, positions: Tensor) -> Tensor:
    """Return the attention of each document alone, joined along dimension 1.

    query, key, value: [B, heads, T, width]. positions: integers [B, T] or [1, T], 0 where a document begins. attend:
    causal attention of those three, for one row and any T, to [1, T, ...].
    """
    rows, bounds_B = [], bounds_of(positions)
    for b, bounds in enumerate(bounds_B * (len(query) // len(bounds_B))):
        parts = [[tensor[b : b + 1, :, begin:end] for tensor in (query, key, value)] for begin, end in pairwise(bounds)]
        rows.append(torch.cat([attend(*part) for part in parts], dim=1))
    return torch.cat(rows)


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    position_ids: Any = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attend as transformers calls it. A mask is there for layers with a window."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    def attend(*states: Tensor) -> Any:
        return sdpa_attention_forward(module, *states, None, **options)[0]

    if attention_mask is not None or position_ids is None or position_ids.dim() != 2:
        return cast(Tensor, sdpa_attention_forward(module, query, key, value, attention_mask, **options)[0]), None
    return by_document(attend, query, key, value, position_ids), None


def _mask(**options: Any) -> Any:
    """Return no mask for causal attention to a whole row, else that of `sdpa`."""
    from transformers.masking_utils import sdpa_mask

    is_whole = options.get("attention_mask") is None and options.get("local_size") is None
    is_whole = is_whole and not options.get("use_vmap") and options["q_length"] == options["kv_length"]
    return None if is_whole else sdpa_mask(**options)


def isolate_documents(name: str, model: Causal, note: Callable[[str], object]) -> None:
    """Let the documents of a packed row be attended one by one; `note` takes a line if they need a mask instead.

    Raise `SettingError` for a model in which a document sees the one before it.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    masked, transformer = check_isolation(name, model), cast(Any, model.model)
    if transformer.config._attn_implementation == SDPA:
        AttentionInterface.register(NAME, _attention)
        AttentionMaskInterface.register(NAME, _mask)
        transformer.set_attn_implementation(NAME)
        if transformer.config._attn_implementation == NAME and equal_logits(
            check_isolation(name, model), masked, ISOLATED
        ):
            return
        transformer.set_attn_implementation(SDPA)
    note(f"{name}: attention in packed rows forms a mask of length x length")


@torch.no_grad()
def check_isolation(name: str, model: Causal) -> Tensor:
    """Return logits of a packed row. Raise `SettingError` if a document in it sees the one before it."""
    tokens = torch.arange(8)[None] % model.vocab_size
    segments = torch.tensor([[1] * 4 + [2] * 4])
    was_training = model.training
    model.eval()
    packed: Tensor = model(tokens, segments).logits
    alone = model(tokens[:, 4:]).logits
    model.train(was_training)
    if not equal_logits(packed[:, 4:], alone, ISOLATED):
        raise SettingError(
            f"{name}: the documents of a packed row see each other in {type(model.model).__name__}; use --documents pad"
        )
    return packed
