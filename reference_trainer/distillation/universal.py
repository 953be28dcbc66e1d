"""Distillation between different tokenizers: the universal logit distillation loss.

Teacher and student read the same text, which their tokenizers split into different tokens. The text is divided into
groups: a group ends wherever a token of the student and a token of the teacher end at the same place. For a group of
the tokens y_1 ... y_n of a model, every token v of the model's vocabulary has the probability

    P(v) = p(y_1) p(y_2 | y_1) ... p(v | y_1 ... y_(n-1)),

which is the probability of the first n - 1 tokens times the distribution of the last token. The sum of P(v) is below 1
if n > 1. Tokens of the two vocabularies are not compared by name, but by rank:

    distance = sum over r of |P_student,(r) - P_teacher,(r)|,  P_(1) >= P_(2) >= ...,

where the shorter list is padded with zeros. The distance of a group is a number from 0 to 2, without a unit.

Sources: Boizard et al. 2024, arXiv:2402.12030, section 3 (the loss); TRL 1.16, `GOLDTrainer` (groups of equal text, and
the product by the chain rule, which is the merge strategy "bayesian"). In TRL, the tokens after the last common end are
a group too; here they are left out, because their texts differ between the models.

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

An incomplete character is decoded as U+FFFD. The other characters may end an incomplete form of a text that
`clean_up_tokenization` of transformers replaces, such as " n't" or " 've".
"""
WINDOW = 8
"""Smallest number of tokens by which a window of `_beginnings_by_windows` advances."""


def spelled(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int]) -> tuple[bytes, list[int | None]]:
    """Return the text of tokens in UTF-8, and the end of every token in bytes.

    An end is None if it is within a character, or equals the end of the next token.

    The end of a token is the length of the text of all tokens up to and including this token, because a token that is
    decoded alone may have another text. A special token has the text `SPECIAL`, one byte, so that the ends of answers
    are equal for two tokenizers with different special tokens.

    Args:
        tokenizer: A tokenizer of transformers. The time is linear in the number of tokens for a fast tokenizer, and
            quadratic for a slow one, and for a fast one whose windows of tokens do not give the text: then every prefix
            of the tokens is decoded.
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
        # An incomplete character is decoded as U+FFFD. If the text itself contains U+FFFD as several tokens, its first
        # token is already decoded as the whole character, and the next tokens add nothing: only the last has an end.
        end = size + specials if is_beginning else None
        if ends and end == ends[-1]:
            ends[-1] = None
        ends.append(end)
    return spelling + content[written:], ends


def _beginning(text: str, whole: str) -> tuple[int, bool]:
    """Return the number of UTF-8 bytes of a text, and whether `whole` begins with the text."""
    return len(text.encode()), whole.startswith(text)


def _beginnings_by_windows(
    decode: Callable[[Sequence[int]], str], tokens: Sequence[int], special: Set[int], whole: str
) -> list[tuple[int, bool]] | None:
    """Return `_beginning` of the text of the first 1, 2, ... tokens, in linear time.

    Return None if the computed text of all tokens is not `whole`.
    """
    # Let text(b:n) be the decoded tokens from b up to but not including n. The first s tokens are settled if no later
    # token changes text(0:s). Decode only the window that begins at b, an earlier value of s: text(0:n) is text(0:s)
    # followed by the part of text(b:n) after text(b:s). Both texts of the window begin with the same token, so both
    # lack the leading space that decoding may drop. When text(0:n) is settled, b becomes s, and s becomes n.
    beginnings = []
    begin = settled = 0
    read, size = 0, 0  # characters and bytes of text(0:s)
    shared = rest = ""  # text(b:s), and the part of text(b:n) after text(b:s)
    for number, token in enumerate(tokens, 1):
        text = decode(tokens[begin:number])
        if not text.startswith(shared):
            # The window ends with an incomplete character after other byte tokens of SentencePiece, which are all
            # decoded as U+FFFD until the character is complete. The size is needed for special tokens only.
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
    # Map each end to the last token with this end. An end of None, or of 0 (no text yet), ends no group.
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
    """Return the groups of predicted tokens of one document, given the student's and the teacher's tokens.

    1. Find the answers, which are the longest runs of predicted tokens, and pair the answers of both models in order.
       Answers without a counterpart are left out.
    2. Leave out spaces and special tokens at the beginning of an answer, because templates may add them.
    3. Align the tokens of the common beginning of both answers. A group with the first token of a document is left out,
       because no position predicts this token.

    Args:
        tokenizers: The tokenizers of student and teacher.
        documents: The tokens of student and teacher, each with a mask of the tokens that are not predicted.
    """
    groups: list[Group] = []
    for runs in zip(*(_predicted_runs(masks) for _, masks in documents), strict=False):
        # 1. Spell the answer with both tokenizers, and find the length of the common beginning in bytes.
        parts = zip(tokenizers, runs, documents, strict=True)
        spellings = [spelled(tokenizer, tokens[run.start : run.stop]) for tokenizer, run, (tokens, _) in parts]
        texts = [text.lstrip(b" \t\r\n" + SPECIAL) for text, _ in spellings]
        pairs = enumerate(zip(*texts, strict=False))
        shared = next((n for n, (one, other) in pairs if one != other), min(map(len, texts)))
        # 2. For each model, find the ends of its tokens within the common beginning, in bytes from its start.
        begins, ends_of_models = [], []
        for run, (text, ends), stripped in zip(runs, spellings, texts, strict=True):
            cut = len(text) - len(stripped)
            skipped = next((n for n, end in enumerate(ends) if end is None or end > cut), len(ends))
            begins.append(run.start + skipped)
            ends_of_models.append([end - cut if end and cut < end <= cut + shared else None for end in ends[skipped:]])
        # 3. Align the tokens. Convert their numbers from the answer to the document.
        for group in align(*ends_of_models):
            shifted = [range(begin + part.start, begin + part.stop) for begin, part in zip(begins, group, strict=True)]
            if all(part.start for part in shifted):
                groups.append((shifted[0], shifted[1]))
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
    """Return P(v) of the module docstring for each group and each token v, [G, V], at least float32.

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
    # The sum over the tokens of a group before its last token is the difference of two cumulative sums. Cumulative sums
    # grow with the length of the row, so they are float64.
    before_N = F.pad(chosen_N.double().cumsum(0), (1, 0))
    bounds = [[group[0] for group in groups], [group[-1] for group in groups]]
    first_G, last_G = torch.tensor(bounds, dtype=torch.int64, device=logits_NV.device)
    prefix_G = (before_N[last_G] - before_N[first_G]).to(log_p_NV.dtype)
    return (log_p_NV[last_G] + prefix_G[:, None]).exp()


def universal_distance(student_GV: Tensor, teacher_GV: Tensor) -> Tensor:
    """Return the distance of each group, [G]: the L1 distance between sorted probabilities, padded with zeros.

    The vocabularies may have different sizes. The result is differentiable with respect to `student_GV`.
    """
    sorted_student_GV = torch.sort(student_GV, dim=-1, descending=True).values
    sorted_teacher_GV = torch.sort(teacher_GV, dim=-1, descending=True).values
    surplus = sorted_teacher_GV.shape[1] - sorted_student_GV.shape[1]
    sorted_student_GV = F.pad(sorted_student_GV, (0, max(surplus, 0)))
    sorted_teacher_GV = F.pad(sorted_teacher_GV, (0, max(-surplus, 0)))
    return (sorted_student_GV - sorted_teacher_GV.to(sorted_student_GV)).abs().sum(-1)


class Paired(Protocol):
    """A document of the data in the tokens of the teacher, and its groups."""

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
        probabilities: The result of `group_probabilities` for the teacher, [G, V].
    """

    spans: Tensor
    probabilities: Tensor


class AlignedTeacher:
    """A frozen model with another tokenizer, which runs on the documents of a batch in its own tokens.

    Args:
        teacher: The model, which takes batches in its own tokens.
        pairs: The documents, by the numbers in `Batch.examples`.
    """

    def __init__(self, teacher: Teacher, pairs: Sequence[Paired]) -> None:
        self._teacher, self._pairs = teacher, pairs

    @property
    def vocab_size(self) -> int:
        """Return the number of tokens in the teacher's vocabulary."""
        return self._teacher.vocab_size

    def aligned(self, batch: Batch, temperature: float) -> list[Aligned]:
        """Return the teacher's output for every row. A batch without example numbers has no groups.

        The model also runs for a batch without groups: if it is sharded, all ranks communicate in its forward.
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
    """Return `group_probabilities` [G, V] for a row in which position n predicts token n + 1.

    spans_G2: begin and end (exclusive) of the tokens of each group.
    """
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
    """Return the cross-entropy of every scored position, and each group's distance where its last token is predicted.

    The loss is ce_weight * cross-entropy + kd_weight * distance; only the cross-entropy is in nats.

    Args:
        student_BTV: Logits of the student.
        tokens_BT: The tokens of the student.
        labels_BT: The label of each position, as `labels_of_logits` returns them.
        aligned: The teacher's outputs for the first rows of the batch. The other rows have no groups.
        weights: The arguments of the loss. In the distance, the temperature divides the student's logits.
        scale: The factor of the gradient; None computes no gradient.
        deferred: Whether to record an invalid position in `RowLosses.fault` instead of raising.

    Returns:
        The rows of `loss_by_blocks` without metrics of a teacher. `divergence_P` is the distance divided by
        temperature^2, because `weighted_sum` multiplies it by temperature^2.

    Raises:
        LogitsError, LabelError: As `loss_by_blocks`.
    """
    rows = loss_by_blocks(
        student_BTV,
        student_BTV,  # in place of the teacher's logits, which have no effect at a kd_weight of 0
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
        # The last token of a span is end - 1, which position end - 2 predicts.
        distance_BT[b, row.spans[:, 1].to(distance_BT.device) - 2] = distance_G.detach().double()
        if factor is not None:
            (gradient_TV,) = torch.autograd.grad(distance_G.sum(), logits_TV)
            rows.gradient_BTV[b] += gradient_TV * factor
    distance_P = distance_BT.flatten()
    wrong_P = ~distance_P.isfinite()
    # `loss_by_blocks` has checked the student's logits, so a distance that is not finite is reported as a NaN of the
    # teacher. A fault contains a place: 0 for no fault, then P labels, P rows of the student, P rows of the teacher.
    fault = rows.fault
    if len(wrong_P):  # `argmax` needs an element
        teacher_fault = KINDS * (1 + 2 * len(wrong_P) + wrong_P.byte().argmax()) + 1
        fault = torch.where((fault == 0) & wrong_P.any(), teacher_fault, fault)
    if not deferred:
        raise_fault(int(fault), labels_BT, student_BTV.shape[-1])
    return replace(rows, divergence_P=distance_P / weights.temperature**2, fault=fault)
