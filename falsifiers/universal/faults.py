"""Wrong versions of functions of the universal loss: the faults that the contract declares."""

from typing import Any


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


def temperature_left_out(original: Any, logits: Any, tokens: Any, groups: Any, *, temperature: float = 1.0) -> Any:
    return original(logits, tokens, groups)


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
    return [len(tokenizer.decode(tokens[: n + 1], skip_special_tokens=True)) for n in range(len(tokens))]
