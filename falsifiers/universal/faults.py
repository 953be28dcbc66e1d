"""Wrong versions of functions of the universal loss: the faults that the contract declares."""

from dataclasses import replace
from typing import Any

import torch


def unsorted(original: Any, student_GV: Any, teacher_GV: Any) -> Any:
    V = min(student_GV.shape[1], teacher_GV.shape[1])
    return (student_GV[:, :V] - teacher_GV[:, :V]).abs().sum(-1)


def surplus_cut(original: Any, student_GV: Any, teacher_GV: Any) -> Any:
    V = min(student_GV.shape[1], teacher_GV.shape[1])
    parts = (one.sort(-1, descending=True).values[:, :V] for one in (student_GV, teacher_GV))
    return original(*parts)


def product_left_out(original: Any, logits: Any, tokens: Any, groups: Any, **options: Any) -> Any:
    return original(logits, tokens, [group[-1:] for group in groups], **options)


def first_token_only(original: Any, logits: Any, tokens: Any, groups: Any, **options: Any) -> Any:
    return original(logits, tokens, [group[:1] for group in groups], **options)


def student_detached(original: Any, student_GV: Any, teacher_GV: Any) -> Any:
    return original(student_GV.detach() + 0 * student_GV, teacher_GV)


def rest_is_a_group(original: Any, student_ends: Any, teacher_ends: Any) -> Any:
    groups = original(student_ends, teacher_ends)
    begins = [groups[-1][side].stop if groups else 0 for side in (0, 1)]
    rest = tuple(range(begin, len(ends)) for begin, ends in zip(begins, (student_ends, teacher_ends), strict=True))
    return [*groups, rest] if all(rest) else groups


def one_to_one(original: Any, student_ends: Any, teacher_ends: Any) -> Any:
    return [(range(n, n + 1), range(n, n + 1)) for n in range(min(len(student_ends), len(teacher_ends)))]


def ends_in_characters(original: Any, tokenizer: Any, tokens: Any) -> Any:
    ends = [len(tokenizer.decode(tokens[: n + 1], skip_special_tokens=True)) for n in range(len(tokens))]
    return original(tokenizer, tokens)[0], ends


def decoded_alone(original: Any, tokenizer: Any, tokens: Any) -> Any:
    """Add up the sizes of tokens that are decoded alone."""
    spelling, ends = original(tokenizer, tokens)
    sizes = [len(tokenizer.decode([token], skip_special_tokens=True).encode()) for token in tokens]
    specials = [token in tokenizer.all_special_ids for token in tokens]
    return spelling, [end and sum(sizes[: n + 1]) + sum(specials[: n + 1]) for n, end in enumerate(ends)]


ALL_SETTLED = ""
SPACES_SETTLED = "\N{REPLACEMENT CHARACTER}"


def by_number(original: Any, tokenizers: Any, documents: Any) -> Any:
    """Compare the predicted tokens of both one by one."""
    sides = [[n for n, is_given in enumerate(flags) if n and not is_given] for _, flags in documents]
    return [(range(n, n + 1), range(m, m + 1)) for n, m in zip(*sides, strict=False)]


def shifted(original: Any, tokenizers: Any, documents: Any) -> Any:
    """Move the tokens of the teacher by one."""
    moved = [(one, range(other.start - 1, other.stop - 1)) for one, other in original(tokenizers, documents)]
    return [(one, other) for one, other in moved if other.start > 0]


def everything_scored(original: Any, tokenizers: Any, documents: Any) -> Any:
    """Compare questions, too."""
    return original(tokenizers, [(tokens, [False] * len(flags)) for tokens, flags in documents])


def mean_of_groups(original: Any, *arguments: Any, scale: Any = None, **options: Any) -> Any:
    """Weight the distance so that it is a mean over the groups of a batch."""
    groups = sum(len(one.spans) for one in arguments[3])
    weights = arguments[4]
    changed = replace(weights, kd_weight=weights.kd_weight * int((arguments[2] != -100).sum()) / max(groups, 1))
    return original(*arguments[:4], changed, scale=scale, **options)


def squared_temperature(original: Any, *arguments: Any, scale: Any = None, **options: Any) -> Any:
    """Multiply the distance by the square of the temperature, as a divergence."""
    factor = arguments[4].temperature ** 2
    changed = replace(arguments[4], kd_weight=arguments[4].kd_weight * factor)
    rows = original(*arguments[:4], changed, scale=scale, **options)
    return replace(rows, divergence_P=rows.divergence_P * factor)


def rows_in_turn(original: Any, self: Any, batch: Any, temperature: float) -> Any:
    """Take the documents of the teacher in the order of the data, whatever rows the batch has."""
    return original(self, replace(batch, examples=torch.arange(len(batch.tokens))), temperature)


def first_token_compared(original: Any, tokenizers: Any, documents: Any) -> Any:
    """Let a token precede the teacher's, and take it away from the groups."""
    student, (tokens, flags) = documents
    groups = original(tokenizers, (student, ([0, *tokens], [True, *flags])))
    return [(one, range(other.start - 1, other.stop - 1)) for one, other in groups]


def turns_not_compared(original: Any, path: Any, student: Any, teacher: Any) -> None:
    if len(student.documents) != len(teacher.documents):
        original(path, student, teacher)
