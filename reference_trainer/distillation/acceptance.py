"""How many tokens of a draft a speculative decoder would accept, measured on a text under teacher forcing.

A draft begins at any scored position. Its token is accepted where student and teacher have the same first most probable
token, and the draft ends at the first that is not (greedy verification, Leviathan, Kalman, Matias 2023,
arXiv:2211.17192). The context is the text: the numbers are those of a decoder only on text that the teacher wrote
greedily.

Shape letters: B batch, T position, K depth.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["accept_length", "accepted", "accepted_name"]


def accepted_name(depth: int) -> str:
    """Return the name of the share of drafts whose token `depth`, from 1, is accepted if those before it are."""
    return f"accepted_{depth}"


def accepted(
    agreed_BT: Tensor, scored_BT: Tensor, segments_BT: Tensor | None, depth: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Return hits and trials of each depth from 1 to `depth`, int64 scalars on the device of the arguments.

    agreed_BT, scored_BT: bool, of the position whose logits predict a token. segments_BT: integers, the document of
    each position; None if each row is one. A start is a trial of depth k if it and the k - 1 positions after it are
    scored, in one document, and the first k - 1 agree; it is a hit if the last agrees too. Unscored positions, such as
    those of a prompt, end a draft. Each row counts alone, so batches and ranks can be added.
    """
    follows_BT = scored_BT.clone()
    if segments_BT is not None:
        follows_BT[:, 1:] &= segments_BT[:, 1:] == segments_BT[:, :-1]
    hits: list[Tensor] = []
    trials: list[Tensor] = []
    tried = scored_BT  # at the last position of each draft
    for k in range(depth):
        hit = tried & agreed_BT[:, k:]
        trials.append(tried.sum())
        hits.append(hit.sum())
        tried = hit[:, :-1] & follows_BT[:, k + 1 :]
    return hits, trials


def accept_length(shares: Iterable[float]) -> float:
    """Return the mean number of accepted tokens of a draft, a_1 + a_1 a_2 + ..., of the share accepted at each depth.

    The shares are those of all tokens: a mean of the lengths of batches is another number. The token that the teacher
    adds to every draft is not counted, so there is no + 1.
    """
    length, reached = 0.0, 1.0
    for share in shares:
        reached *= share
        length += reached
    return length
