"""Distillation between different vocabularies: the universal logit distillation loss, over tokens that spell one text.

Teacher and student read the same text in other tokens. Their tokens are grouped where both have a boundary, so a group
is the shortest stretch of text that is whole tokens of both. The probability of a stretch that ends in token v is

    P(v) = p(y_1) p(y_2 | y_1) ... p(v | y_1 ... y_(n-1)),

the product along the tokens of the group before the last, with the distribution of the last; its sum is below 1 for a
group of several tokens. Tokens of the two vocabularies are not compared by name, but by rank:

    distance = sum over r of |P_student,(r) - P_teacher,(r)|,  P_(1) >= P_(2) >= ...,

where the shorter list is padded with zeros. A token has a distance from 0 to 2, without a unit.

Sources: Boizard et al. 2024, arXiv:2402.12030, section 3 (the loss); TRL 1.16, `GOLDTrainer` (groups of equal text, and
their product by the chain rule, its merge strategy "bayesian"). There the rest after the last common boundary is a
group too; here it is left out, since it is not the same text.

Shape letters: N positions, V vocabulary, G groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from reference_trainer.errors import ShapeError

Group = tuple[range, range]
"""The numbers of consecutive tokens of the student and of the teacher that spell the same text."""


def text_ends(tokenizer: Any, tokens: Sequence[int]) -> list[int | None]:
    """Return where each token of a text ends, in bytes of UTF-8; None for a token that ends within a character.

    A special token counts as one byte, so that the ends of an answer in two tokenizers are compared, whatever they are
    called. tokenizer: of transformers; it decodes every beginning of the text, so that tokens that depend on those
    before them, such as ones with a leading space, are measured in their place.
    """
    special = set(tokenizer.all_special_ids)
    whole = tokenizer.decode(tokens, skip_special_tokens=True)
    ends: list[int | None] = []
    specials = 0
    for number, token in enumerate(tokens, 1):
        specials += token in special
        text = tokenizer.decode(tokens[:number], skip_special_tokens=True)
        # Half a character is decoded as U+FFFD. Where the text has that character itself, its first tokens seem to be
        # whole, and the one after them adds nothing.
        end = len(text.encode()) + specials if whole.startswith(text) else None
        if ends and end == ends[-1]:
            ends[-1] = None
        ends.append(end)
    return ends


def align(student_ends: Sequence[int | None], teacher_ends: Sequence[int | None]) -> list[Group]:
    """Return the groups of the tokens of one text, in order; tokens after the last common end are in no group.

    Args:
        student_ends: Where each token of the student ends, as `text_ends` returns it.
        teacher_ends: The same for the teacher.

    Returns:
        Groups of at least one token on either side.
    """
    last_of = [{end: number for number, end in enumerate(ends) if end} for ends in (student_ends, teacher_ends)]
    groups, begins = [], [0, 0]
    for end in sorted(last_of[0].keys() & last_of[1].keys()):
        stops = [last[end] + 1 for last in last_of]
        groups.append((range(begins[0], stops[0]), range(begins[1], stops[1])))
        begins = stops
    return groups


def group_probabilities(
    logits_NV: Tensor, tokens_N: Tensor, groups: Sequence[range], *, temperature: float = 1.0
) -> Tensor:
    """Return the probability of the text of each group by its last token, [G, V], at least float32.

    Args:
        logits_NV: Row n has the logits of token n, floating [N, V].
        tokens_N: The tokens, integers [N].
        groups: Consecutive tokens each, by their numbers.
        temperature: What the logits are divided by.

    Raises:
        ShapeError: For other shapes.
    """
    if logits_NV.dim() != 2 or tokens_N.shape != logits_NV.shape[:1]:
        read = f"logits {list(logits_NV.shape)}, tokens {list(tokens_N.shape)}"
        raise ShapeError(f"shapes do not match: {read}; expected [N, V] and [N]")
    wide_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    log_p_NV = F.log_softmax(wide_NV / temperature, -1)
    chosen_N = log_p_NV.gather(1, tokens_N.long()[:, None])[:, 0]
    # The sum of a stretch is a difference of sums from the beginning.
    before_N = F.pad(chosen_N.double().cumsum(0), (1, 0))
    first_G, last_G = (torch.tensor([group[at] for group in groups], device=logits_NV.device) for at in (0, -1))
    prefix_G = (before_N[last_G] - before_N[first_G]).to(log_p_NV.dtype)
    return (log_p_NV[last_G] + prefix_G[:, None]).exp()


def universal_distance(student_GV: Tensor, teacher_GV: Tensor) -> Tensor:
    """Return the distance of each group, [G]: L1 between probabilities in decreasing order, padded with zeros.

    The vocabularies may have different sizes. The gradient reaches the student through the sorted values.
    """
    sorted_student_GV, sorted_teacher_GV = (
        torch.sort(one_GV, dim=-1, descending=True).values for one_GV in (student_GV, teacher_GV)
    )
    surplus = sorted_teacher_GV.shape[1] - sorted_student_GV.shape[1]
    sorted_student_GV = F.pad(sorted_student_GV, (0, max(surplus, 0)))
    sorted_teacher_GV = F.pad(sorted_teacher_GV, (0, max(-surplus, 0)))
    return (sorted_student_GV - sorted_teacher_GV.to(sorted_student_GV)).abs().sum(-1)
