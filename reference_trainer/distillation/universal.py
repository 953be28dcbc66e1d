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

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from reference_trainer.distillation.losses import KINDS, RowLosses, loss_by_blocks, raise_fault
from reference_trainer.distillation.objective import IGNORE_INDEX, Weights
from reference_trainer.distillation.protocols import Batch, Teacher, TopKTeacher, checked_logits
from reference_trainer.errors import ShapeError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Group = tuple[range, range]
"""The positions of the student's and of the teacher's tokens that spell the same text."""


SPECIAL = b"\xff"
"""The byte that replaces a special token. UTF-8 does not use it."""
UNSETTLED = " 'nvr\N{REPLACEMENT CHARACTER}"
"""Last characters of a text that may be decoded differently when more tokens follow.

An incomplete character is decoded as U+FFFD. With the other characters begin the texts that `clean_up_tokenization` of
transformers replaces, such as " n't".
"""
WINDOW = 8
"""Least number of tokens that are decoded before a token, so that a leading space is decoded as in the whole text."""


def spelled(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int]) -> tuple[bytes, list[int | None]]:
    """Return the text of tokens in UTF-8, and for every token its end in bytes; None for an end within a character.

    The end of a token is the length of the text of all tokens up to it: decoded alone, a token may have another text.
    A special token is the one byte `SPECIAL`, so that the ends of answers are equal in two tokenizers with different
    special tokens.

    Args:
        tokenizer: A tokenizer of transformers. The time is linear in the number of tokens for a fast tokenizer, and
            quadratic for a slow one, which decodes every prefix of the tokens.
        tokens: The tokens.
    """
    special = set(tokenizer.all_special_ids)
    decode = partial(tokenizer.decode, skip_special_tokens=True)
    text = decode(tokens)
    beginnings = None
    if getattr(tokenizer, "is_fast", False):
        beginnings = _beginnings_by_windows(decode, tokens, special, text)
    if beginnings is None:
        beginnings = [_beginning(decode(tokens[:number]), text) for number in range(1, len(tokens) + 1)]
    content = text.encode()
    ends: list[int | None] = []
    spelling, written, specials = b"", 0, 0
    for token, (size, is_beginning) in zip(tokens, beginnings, strict=True):
        if token in special:
            spelling += content[written:size] + SPECIAL
            written = size
            specials += 1
        # An incomplete character is decoded as U+FFFD. If the text itself has this character, its first token already
        # gives the whole character and the next token adds nothing: then only the last token has an end.
        end = size + specials if is_beginning else None
        if ends and end == ends[-1]:
            ends[-1] = None
        ends.append(end)
    return spelling + content[written:], ends


def _beginning(text: str, whole: str) -> tuple[int, bool]:
    """Return the size of a text in UTF-8 in bytes, and whether `whole` begins with the text."""
    return len(text.encode()), whole.startswith(text)


def _beginnings_by_windows(
    decode: Callable[[Sequence[int]], str], tokens: Sequence[int], special: Set[int], whole: str
) -> list[tuple[int, bool]] | None:
    """Return `_beginning` of the text of the first 1, 2, ... tokens; None if the text of all is then not `whole`."""
    # Write text(b:n) for the text that tokens b to n spell alone. A text is settled if no later token changes it. With
    # s settled tokens (b in the round before), text(0:n) is text(0:s) and the part of text(b:n) after text(b:s): both
    # begin with the same token, and so lack the same leading space. Then s becomes b, and n becomes s.
    beginnings = []
    begin = settled = 0
    read, size = 0, 0  # characters and bytes of text(0:s)
    shared = rest = ""  # text(b:s), and what text(b:n) has after it
    for number, token in enumerate(tokens, 1):
        text = decode(tokens[begin:number])
        if not text.startswith(shared):
            # Half a character after other byte tokens of SentencePiece: all of them are decoded as U+FFFD until it is
            # whole. The size is read at special tokens only.
            beginnings.append(_beginning(decode(tokens[:number]), whole) if token in special else (0, False))
            continue
        rest = text[len(shared) :]
        end, is_beginning = size + len(rest.encode()), whole.startswith(rest, read)
        beginnings.append((end, is_beginning))
        if number - settled >= WINDOW and rest and is_beginning and rest[-1] not in UNSETTLED:
            begin, settled = settled, number
            read, size = read + len(rest), end
            shared, rest = decode(tokens[begin:settled]), ""
    return beginnings if whole[read:] == rest else None


def align(student_ends: Sequence[int | None], teacher_ends: Sequence[int | None]) -> list[Group]:
    """Return the groups of the tokens of one text, in order; tokens after the last common end are in no group.

    Args:
        student_ends: The ends of the student's tokens, as `spelled` returns them.
        teacher_ends: The ends of the teacher's tokens.

    Returns:
        Groups of at least one token of each model.
    """
    # The last token with each end. An end of None, or of 0 (no text yet), ends no group.
    student_last = {end: number for number, end in enumerate(student_ends) if end}
    teacher_last = {end: number for number, end in enumerate(teacher_ends) if end}
    groups = []
    student_begin = teacher_begin = 0
    for end in sorted(student_last.keys() & teacher_last.keys()):
        student_stop, teacher_stop = student_last[end] + 1, teacher_last[end] + 1
        groups.append((range(student_begin, student_stop), range(teacher_begin, teacher_stop)))
        student_begin, teacher_begin = student_stop, teacher_stop
    return groups


def answer_groups(
    tokenizers: Sequence[object], documents: Sequence[tuple[Sequence[int], Sequence[bool]]]
) -> list[Group]:
    """Return the groups of predicted tokens of one document in the tokens of student and teacher.

    1. Find the answers, the longest runs of predicted tokens, and pair the answers of both models in their order.
       Answers without a counterpart are left out.
    2. Leave out spaces and special tokens at the beginning of an answer, which templates may add.
    3. Align the tokens of the common beginning of both answers. A group with the first token of a document is left out,
       because no position predicts it.

    Args:
        tokenizers: The tokenizers of student and teacher.
        documents: The tokens of student and teacher, each with a mask of the tokens that are not predicted.
    """
    groups: list[Group] = []
    for runs in zip(*(_predicted_runs(masks) for _, masks in documents), strict=False):
        # 1. The texts of an answer in the tokens of both models, and the length of their common beginning.
        parts = zip(tokenizers, runs, documents, strict=True)
        spellings = [spelled(tokenizer, tokens[run.start : run.stop]) for tokenizer, run, (tokens, _) in parts]
        texts = [text.lstrip(b" \t\r\n" + SPECIAL) for text, _ in spellings]
        pairs = enumerate(zip(*texts, strict=False))
        shared = next((n for n, (one, other) in pairs if one != other), min(map(len, texts)))
        # 2. For each model, the ends of its tokens within the common beginning, counted from its start.
        begins, sides = [], []
        for run, (text, ends), rest in zip(runs, spellings, texts, strict=True):
            before = len(text) - len(rest)
            left_out = next((n for n, end in enumerate(ends) if end is None or end > before), len(ends))
            begins.append(run.start + left_out)
            sides.append([end - before if end and before < end <= before + shared else None for end in ends[left_out:]])
        # 3. Align, and count tokens from the beginning of the document.
        for group in align(sides[0], sides[1]):
            placed = [range(begin + part.start, begin + part.stop) for begin, part in zip(begins, group, strict=True)]
            if all(part.start for part in placed):
                groups.append((placed[0], placed[1]))
    return groups


def _predicted_runs(masked: Sequence[bool]) -> list[range]:
    """Return the longest runs of tokens that are not masked."""
    runs, begin = [], None
    for position, is_masked in enumerate([*masked, True]):  # the additional mask ends a last run
        if begin is None and not is_masked:
            begin = position
        elif begin is not None and is_masked:
            runs.append(range(begin, position))
            begin = None
    return runs


def group_probabilities(
    logits_NV: Tensor, tokens_N: Tensor, groups: Sequence[range], *, temperature: float = 1.0
) -> Tensor:
    """Return the probability of the text of each group by its last token, [G, V], at least float32.

    Args:
        logits_NV: The logits that predict each token, floating [N, V].
        tokens_N: The tokens, integers [N].
        groups: Ranges of consecutive tokens.
        temperature: The divisor of the logits.

    Raises:
        ShapeError: If the shapes do not match.
    """
    if logits_NV.dim() != 2 or tokens_N.shape != logits_NV.shape[:1]:
        shapes = f"logits {list(logits_NV.shape)}, tokens {list(tokens_N.shape)}"
        raise ShapeError(f"shapes do not match: {shapes}; expected [N, V] and [N]")
    wide_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    log_p_NV = F.log_softmax(wide_NV / temperature, -1)
    chosen_N = log_p_NV.gather(1, tokens_N.long()[:, None])[:, 0]
    # The sum over the tokens before the last one of a group is the difference of two cumulative sums. These grow with
    # the length of the row, so they are float64.
    before_N = F.pad(chosen_N.double().cumsum(0), (1, 0))
    bounds = [[group[0] for group in groups], [group[-1] for group in groups]]
    first_G, last_G = torch.tensor(bounds, dtype=torch.int64, device=logits_NV.device)
    prefix_G = (before_N[last_G] - before_N[first_G]).to(log_p_NV.dtype)
    return (log_p_NV[last_G] + prefix_G[:, None]).exp()


def universal_distance(student_GV: Tensor, teacher_GV: Tensor) -> Tensor:
    """Return the distance of each group, [G]: L1 between probabilities in decreasing order, padded with zeros.

    The vocabularies may have different sizes. The gradient reaches the student through the sorted values.
    """
    sorted_student_GV = torch.sort(student_GV, dim=-1, descending=True).values
    sorted_teacher_GV = torch.sort(teacher_GV, dim=-1, descending=True).values
    surplus = sorted_teacher_GV.shape[1] - sorted_student_GV.shape[1]
    sorted_student_GV = F.pad(sorted_student_GV, (0, max(surplus, 0)))
    sorted_teacher_GV = F.pad(sorted_teacher_GV, (0, max(-surplus, 0)))
    return (sorted_student_GV - sorted_teacher_GV.to(sorted_student_GV)).abs().sum(-1)


class Paired(Protocol):
    """A document of the student in the tokens of the teacher."""

    @property
    def teacher_tokens(self) -> Tensor:
        """Return the tokens of the teacher, integers [N]."""
        ...

    @property
    def groups(self) -> Tensor:
        """Return int64 [G, 4]: for each group, begin and end (exclusive) of student tokens, then of teacher tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Aligned:
    """The teacher's output for a row.

    Attributes:
        spans: Begin and end (exclusive) of the student's tokens of each group, int64 [G, 2].
        probabilities: The probability of the text of each group by its last token, [G, V] of the teacher's vocabulary.
    """

    spans: Tensor
    probabilities: Tensor


class AlignedTeacher:
    """A frozen model with another tokenizer. It gets the documents of a batch in the tokens of its tokenizer.

    Args:
        teacher: The model, which takes batches of its tokens.
        pairs: The documents, by the numbers in `Batch.examples`.
    """

    def __init__(self, teacher: Teacher, pairs: Sequence[Paired]) -> None:
        self._teacher, self._pairs = teacher, pairs

    @property
    def vocab_size(self) -> int:
        """The number of the teacher's tokens."""
        return self._teacher.vocab_size

    def aligned(self, batch: Batch, temperature: float) -> list[Aligned]:
        """Return the teacher's output for every row. A batch without example numbers has no groups.

        The model also runs for a batch without groups, because ranks with its shards communicate in its forward.
        """
        pairs = [] if batch.examples is None else [self._pairs[number] for number in batch.examples.tolist()]
        tokens = [pair.teacher_tokens.long() for pair in pairs] or [torch.zeros(1, dtype=torch.int64)]
        tokens_BT = pad_sequence(tokens, batch_first=True)
        teacher_batch = Batch(tokens=tokens_BT, labels=torch.full_like(tokens_BT, IGNORE_INDEX))
        logits_BTV = checked_logits("teacher", self._teacher.logits(teacher_batch), tokens_BT, self.vocab_size)
        return [
            Aligned(pair.groups[:, :2], _text_probabilities(logits_TV, tokens_T, pair.groups[:, 2:], temperature))
            for pair, logits_TV, tokens_T in zip(pairs, logits_BTV, tokens_BT, strict=False)
        ]


Frozen = Teacher | TopKTeacher | AlignedTeacher
"""A model that a student can be distilled from."""


def _text_probabilities(logits_TV: Tensor, tokens_T: Tensor, spans_G2: Tensor, temperature: float) -> Tensor:
    """Return the probabilities of groups, [G, V], of a row whose token n + 1 is predicted at position n."""
    # Select the positions of all groups, and renumber the groups among the selected positions.
    spans: list[list[int]] = spans_G2.tolist()
    positions = [position for begin, end in spans for position in range(begin, end)]
    positions_N = torch.tensor(positions, dtype=torch.int64, device=logits_TV.device)
    ends = torch.tensor([end - begin for begin, end in spans], dtype=torch.int64).cumsum(0).tolist()
    groups = [range(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
    tokens_N = tokens_T.to(logits_TV.device)[positions_N]
    return group_probabilities(logits_TV[positions_N - 1], tokens_N, groups, temperature=temperature)


def aligned_rows(
    student_BTV: Tensor,
    tokens_BT: Tensor,
    labels_BT: Tensor,
    aligned: Sequence[Aligned],
    weights: Weights,
    *,
    scale: float | Tensor | None = None,
    deferred: bool = False,
) -> RowLosses:
    """Return the cross-entropy of every scored row, and the distance of each group in the row of its last token.

    The sum is ce_weight * cross-entropy + kd_weight * distance; only the cross-entropy is in nats.

    Args:
        student_BTV: Logits of the student.
        tokens_BT: The tokens of the student.
        labels_BT: The label of each row, as `labels_of_logits` returns them.
        aligned: The teacher's outputs for the first rows of the batch. The other rows have no groups.
        weights: The arguments of the loss; the temperature divides the logits of both models in the distance.
        scale: The factor of the gradient; None computes no gradient.
        deferred: Whether to record an invalid row in `RowLosses.fault` instead of raising.

    Returns:
        Rows without metrics of a teacher. `divergence_P` is the distance divided by temperature^2, because sums
        multiply it by temperature^2.

    Raises:
        LogitsError, LabelError: As `loss_by_blocks`.
    """
    rows = loss_by_blocks(
        student_BTV,
        student_BTV,  # in place of the teacher's logits, which are not read at a kd_weight of 0
        labels_BT,
        replace(weights, ce_weight=1.0, kd_weight=0.0),
        ignore_index=IGNORE_INDEX,
        scale=None if scale is None else scale * weights.ce_weight,
        deferred=deferred,
    )
    factor = None if scale is None or not weights.kd_weight else scale * weights.kd_weight
    distance_BT = torch.zeros(labels_BT.shape, dtype=torch.float64, device=student_BTV.device)
    for b, row in enumerate(aligned):
        if not len(row.spans):
            continue
        # The distance of one row at a time is differentiated by autograd, and its gradient is added to the closed form.
        with torch.set_grad_enabled(factor is not None):
            logits_TV = student_BTV[b].detach().requires_grad_(factor is not None)
            student_GV = _text_probabilities(logits_TV, tokens_BT[b], row.spans, weights.temperature)
            distance_G = universal_distance(student_GV, row.probabilities)
        # A span ends at `end`, so its last token is end - 1, which the position end - 2 predicts.
        distance_BT[b, row.spans[:, 1].to(distance_BT.device) - 2] = distance_G.detach().double()
        if factor is not None:
            (gradient_TV,) = torch.autograd.grad(distance_G.sum(), logits_TV)
            rows.gradient_BTV[b] += gradient_TV * factor
    distance_P = distance_BT.flatten()
    wrong_P = ~distance_P.isfinite()
    # `loss_by_blocks` has checked the student, so a distance that is not finite is reported as NaN of the teacher. The
    # places of faults are: 0 no fault, then P labels, P rows of the student, P rows of the teacher.
    fault = rows.fault
    if len(wrong_P):  # `argmax` needs an element
        teacher_fault = KINDS * (1 + 2 * len(wrong_P) + wrong_P.byte().argmax()) + 1
        fault = torch.where((fault == 0) & wrong_P.any(), teacher_fault, fault)
    if not deferred:
        raise_fault(int(fault), labels_BT, student_BTV.shape[-1])
    return replace(rows, divergence_P=distance_P / weights.temperature**2, fault=fault)
