"""Attacks on the check of a model's result: one that is not logits is refused, and the message states it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from falsifiers.support.steps import USUAL, ZEROS, AnsweringTeacher, RecordingStudent, complaints, step_complaints

ANSWERS: list[tuple[str, Callable[[Tensor], Any], tuple[str, ...]]] = [
    ("nothing", lambda logits: None, ("None instead of logits",)),
    ("a list", lambda logits: logits.tolist(), ("list",)),
    ("token ids", lambda logits: logits.argmax(-1), ("int64",)),
    ("a larger vocabulary", lambda logits: torch.cat([logits, logits], -1), ("vocabulary of 4",)),
    ("the last position only", lambda logits: logits[:, -1:], ("[2, 1, 2]",)),
    ("transposed positions", lambda logits: logits.transpose(0, 1), ("[3, 2, 2]",)),
    ("one number, as a loss is", lambda logits: logits.sum(), ("[]",)),
    ("a dict without attributes", lambda logits: {"logits": logits}, ("dict",)),
    ("NaN", lambda logits: torch.full_like(logits, math.nan), ("teacher", "nan")),
]


class Constant(nn.Module):
    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, tokens: Tensor) -> Any:
        return self.answer


def falsify_invalid_logits_are_refused(subject: Any) -> None:
    tokens = torch.tensor([[0, 1, 1], [1, 0, 1]])
    batch = subject.Batch(tokens=tokens, labels=tokens)
    right = torch.zeros(2, 3, 2, dtype=torch.float64)
    found: list[str] = []
    for what, answer, words in ANSWERS:
        found += _teacher_complaints(subject, batch, f"answers with {what}", answer(right), words)
        found += _student_complaints(subject, batch, f"answers with {what}", answer(right), words)
    assert not found, "\n".join(found)


def _teacher_complaints(subject: Any, batch: Any, does: str, answer: Any, words: tuple[str, ...]) -> Iterator[str]:
    """Yield a complaint for each teacher with this result that is not refused correctly."""
    for name, teacher in (
        (f"a protocol teacher that {does}", AnsweringTeacher(2, answer)),
        (f"a module teacher that {does}", subject.ModuleTeacher(Constant(answer), 2)),
    ):
        yield from step_complaints(subject, name, teacher, RecordingStudent(ZEROS), batch, USUAL, words)


def _student_complaints(subject: Any, batch: Any, does: str, answer: Any, words: tuple[str, ...]) -> Iterator[str]:
    """Yield a complaint for each student with this result that is not refused correctly.

    None makes RecordingStudent return its table, and NaN is refused by the step only, so these are left out.
    """
    words = tuple(word.replace("teacher", "student") for word in words)
    if answer is not None:
        learner, frozen = RecordingStudent(ZEROS, answer), subject.FixtureTeacher(ZEROS)
        yield from step_complaints(subject, f"a protocol student that {does}", frozen, learner, batch, USUAL, words)
    if "nan" not in words:
        module = subject.ModuleStudent(Constant(answer), 2)
        call = functools.partial(module.forward, batch)
        yield from complaints(f"a module student that {does}", call, words)
