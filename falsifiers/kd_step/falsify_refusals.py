"""Attacks on the input checks of a distillation step: results that are not logits, settings outside the domain."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from falsifiers.kd_step.steps import AnsweringTeacher, RecordingStudent
from falsifiers.support import oracles

USUAL = {"temperature": 1.0, "ce_weight": 0.5, "kd_weight": 0.5}
ZEROS = torch.zeros(2, 2, dtype=torch.float64)
RIGHT = torch.tensor([[0, 1, 1]])

ANSWERS: list[tuple[str, Callable[[Tensor], Any], tuple[str, ...]]] = [
    ("nothing", lambda logits: None, ("None", "weights", "device")),
    ("a list", lambda logits: logits.tolist(), ("list",)),
    ("token ids", lambda logits: logits.argmax(-1), ("int64",)),
    ("a larger vocabulary", lambda logits: torch.cat([logits, logits], -1), ("vocabular", "checkpoint")),
    ("a smaller vocabulary", lambda logits: logits[..., :-1], ("vocabular", "checkpoint")),
    ("the last position only", lambda logits: logits[:, -1:], ("shape",)),
    ("no position axis", lambda logits: logits[:, -1], ("shape",)),
    ("one element for the batch", lambda logits: logits[:1], ("shape",)),
    ("transposed positions", lambda logits: logits.transpose(0, 1), ("shape",)),
    ("a fourth axis", lambda logits: logits[None], ("shape",)),
    ("one number, as a loss is", lambda logits: logits.sum(), ("shape", "[]")),
    ("one number per position", lambda logits: logits[0, :, 0], ("shape", "[3]")),
    ("nothing for an empty batch", lambda logits: logits[:0], ("shape", "[0, 3, 2]")),
    ("which logits are positive", lambda logits: logits > 0, ("bool",)),
    ("complex numbers", lambda logits: logits.to(torch.complex64), ("complex",)),
    ("a tuple", lambda logits: (logits, None), ("tuple",)),
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
    """Each invalid result of a model is refused with its likely cause, before the student gets a gradient."""
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
        yield from _step_complaints(subject, name, teacher, RecordingStudent(ZEROS), batch, USUAL, words)


def _student_complaints(subject: Any, batch: Any, does: str, answer: Any, words: tuple[str, ...]) -> Iterator[str]:
    """Yield a complaint for each student with this result that is not refused correctly.

    None makes RecordingStudent return its table, and NaN is refused by the step only, so these are left out.
    """
    words = tuple(word.replace("teacher", "student") for word in words)
    if answer is not None:
        learner, frozen = RecordingStudent(ZEROS, answer), subject.FixtureTeacher(ZEROS)
        yield from _step_complaints(subject, f"a protocol student that {does}", frozen, learner, batch, USUAL, words)
    if "nan" not in words:
        module = subject.ModuleStudent(Constant(answer), 2)
        call = functools.partial(module.forward, batch)
        yield from _complaints(f"a module student that {does}", call, words)


def _step_complaints(
    subject: Any,
    what: str,
    teacher: Any,
    student: RecordingStudent,
    batch: Any,
    settings: dict[str, float],
    words: tuple[str, ...],
) -> Iterator[str]:
    """Yield a complaint if the step is not refused correctly, and one if the student got a gradient before."""
    yield from _complaints(what, functools.partial(subject.kd_step, teacher, student, batch, **settings), words)
    if any(done.gradients for done in student.passes):
        yield f"{what}: the student got a gradient before the refusal"


def _complaints(what: str, call: Callable[[], Any], words: tuple[str, ...]) -> Iterator[str]:
    complaint = oracles.refusal_complaint(what, call, *words)
    if complaint is not None:
        yield complaint


INVALID_STEPS: list[tuple[str, Tensor, Tensor, Tensor, dict[str, float], tuple[str, ...]]] = [
    ("a teacher of vocabulary 3", torch.zeros(2, 3).double(), RIGHT, RIGHT, USUAL, ("2", "3", "vocab")),
    ("a teacher of vocabulary 1", torch.zeros(2, 1).double(), RIGHT, RIGHT, USUAL, ("2", "1", "vocab")),
    ("a token without a row", ZEROS, torch.tensor([[0, 2, 1]]), RIGHT, USUAL, ("token 2",)),
    ("a negative token", ZEROS, torch.tensor([[0, -1, 1]]), RIGHT, USUAL, ("token -1",)),
    ("a label outside", ZEROS, RIGHT, torch.tensor([[0, 1, 2]]), USUAL, ("label 2",)),
    ("temperature 0", ZEROS, RIGHT, RIGHT, {**USUAL, "temperature": 0.0}, ("temperature",)),
    ("a negative weight", ZEROS, RIGHT, RIGHT, {**USUAL, "kd_weight": -1.0}, ("kd_weight",)),
]


def _invalid_step_complaints(
    subject: Any,
    what: str,
    table: Tensor,
    tokens: Tensor,
    labels: Tensor,
    settings: dict[str, float],
    words: tuple[str, ...],
) -> Iterator[str]:
    student, teacher = RecordingStudent(ZEROS), subject.FixtureTeacher(table)
    batch = subject.Batch(tokens=tokens, labels=labels)
    yield from _step_complaints(subject, what, teacher, student, batch, settings, words)
    if "vocabulary" in what and student.passes:
        yield f"{what}: the student ran its forward, although the vocab_size of the two models differ"


def _token_without_a_row(subject: Any) -> None:
    outside = subject.Batch(tokens=torch.tensor([[-1, 0]]), labels=torch.tensor([[0, 0]]))
    subject.FixtureStudent(ZEROS, 1.0).forward(outside)


def _gradient_for_a_frozen_module(subject: Any) -> None:
    """Apply a gradient to a pass of a module whose parameters are all frozen."""
    module = nn.Embedding(2, 2).requires_grad_(False)
    done = subject.ModuleStudent(module, 2).forward(subject.Batch(tokens=RIGHT, labels=RIGHT))
    done.backward(torch.zeros(1, 3, 2))


PARTS: list[tuple[str, Callable[[Any], Any], tuple[str, ...]]] = [
    ("a student's token without a row", _token_without_a_row, ("token -1",)),
    ("labels of another shape", lambda s: s.Batch(tokens=RIGHT, labels=RIGHT[:, 1:]), ("labels", "[1, 2]")),
    ("tokens that are floats", lambda s: s.Batch(tokens=RIGHT.double(), labels=RIGHT), ("tokens", "float64")),
    ("tokens without a batch axis", lambda s: s.Batch(tokens=RIGHT[0], labels=RIGHT[0]), ("tokens", "[3]")),
    ("a table without an axis", lambda s: s.FixtureTeacher(ZEROS[0]), ("table", "[2]")),
    ("tokens that are a list", lambda s: s.Batch(tokens=[[0]], labels=RIGHT), ("tokens", "list")),
    ("a table that is a list", lambda s: s.FixtureTeacher([[0.0]]), ("table", "list")),
    ("an infinite learning rate", lambda s: s.FixtureStudent(ZEROS, math.inf), ("learning_rate",)),
    ("a gradient for a frozen module", _gradient_for_a_frozen_module, ("no parameter",)),
    ("a learning rate of NaN", lambda s: s.FixtureStudent(ZEROS, math.nan), ("learning_rate",)),
    ("a learning rate below 0", lambda s: s.FixtureStudent(ZEROS, -1.0), ("learning_rate",)),
]


def falsify_invalid_steps_are_refused(subject: Any) -> None:
    """Different vocabularies, tokens without a row, labels and settings outside their domain are refused."""
    found = [complaint for case in INVALID_STEPS for complaint in _invalid_step_complaints(subject, *case)]
    for what, call, words in PARTS:
        found += _complaints(what, functools.partial(call, subject), words)
    assert not found, "\n".join(found)
    subject.FixtureStudent(ZEROS, 0.0)  # a learning rate of 0 is valid
