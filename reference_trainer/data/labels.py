"""Labels of token sequences: which tokens are predicted, in rows with padding, prompts or several documents.

Shape letters: B batch, T position.
"""

from __future__ import annotations

import torch
from torch import Tensor

from reference_trainer.distillation.domain import IGNORE_INDEX
from reference_trainer.errors import ShapeError

__all__ = ["create_labels", "prefix_mask"]


def create_labels(
    tokens: Tensor, segments: Tensor | None = None, *, padding_id: int | None = None, prompts: Tensor | None = None
) -> Tensor:
    """Return labels, int64 [B, T]: the token where it is predicted, otherwise -100. `kd_step` shifts them.

    A token is predicted if it is neither padding nor part of a prompt, and the token before it belongs to the same
    document. tokens: integers [B, T]. segments: [B, T], the number of the document of each token from 1, 0 for padding
    (or a mask of the tokens that are not padding). padding_id: the token that is padding wherever it occurs; used
    only without segments, because a document may hold it too, as its end-of-sequence token. prompts: bool [B, T], True
    for tokens of a prompt. Raise `ShapeError` if the shapes differ.
    """
    _check(tokens, segments=segments, prompts=prompts)
    if segments is None:
        segments = torch.ones_like(tokens) if padding_id is None else tokens != padding_id
    predicted_BT = torch.zeros_like(tokens, dtype=torch.bool)
    predicted_BT[:, 1:] = (segments[:, 1:] != 0) & (segments[:, 1:] == segments[:, :-1])
    if prompts is not None:
        predicted_BT &= ~prompts
    return tokens.long().masked_fill(~predicted_BT, IGNORE_INDEX)


def prefix_mask(lengths: Tensor, width: int) -> Tensor:
    """Return a mask of the first lengths[b] of `width` positions, bool [B, T], for prompts or documents of length [B].

    Example: `create_labels(tokens, prefix_mask(lengths, T), prompts=prefix_mask(prompt_lengths, T))`.
    """
    return torch.arange(width, device=lengths.device) < lengths[:, None]


def _check(tokens_BT: Tensor, **others: Tensor | None) -> None:
    for name, value in others.items():
        if value is not None and value.shape != tokens_BT.shape:
            raise ShapeError(
                f"shapes do not match: tokens {list(tokens_BT.shape)}, {name} {list(value.shape)}; expected [B, T] each"
            )
