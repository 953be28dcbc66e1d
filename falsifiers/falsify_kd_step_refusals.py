"""Attacks on what a distillation step refuses: answers that are no logits, and settings outside its domain.

The subject is that of `falsify_kd_step`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from falsifiers import oracles
from falsifiers.kd_steps import AnsweringTeacher, RecordingStudent

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


def falsify_broken_answers_are_refused(subject: Any) -> None:
    """Each wrong answer by its likely cause, and the student has had no gradient."""
    tokens = torch.tensor([[0, 1, 1], [1, 0, 1]])
    batch = subject.Batch(tokens=tokens, labels=tokens)
    right = torch.zeros(2, 3, 2, dtype=torch.float64)
    settings = {"temperature": 1.0, "ce_weight": 0.5, "kd_weight": 0.5}
    found: list[str | None] = []
    for what, answer, words in ANSWERS:
        for kind, teacher in (
            ("protocol", AnsweringTeacher(2, answer(right))),
            ("module", subject.ModuleTeacher(Constant(answer(right)), 2)),
        ):
            student = RecordingStudent(torch.zeros(2, 2, dtype=torch.float64))
            name = f"a {kind} teacher that answers with {what}"
            found.append(
                oracles.refusal_complaint(
                    name, lambda t=teacher, s=student: subject.kd_step(t, s, batch, **settings), *words
                )
            )
            if any(done.gradients for done in student.passes):
                found.append(f"{name}: the student had a gradient before the refusal")
        learner = RecordingStudent(torch.zeros(2, 2, dtype=torch.float64), answer(right))
        frozen = subject.FixtureTeacher(torch.zeros(2, 2, dtype=torch.float64))
        own_words = tuple(word.replace("teacher", "student") for word in words)
        if what != "nothing":  # to RecordingStudent, None means its table
            name = f"a protocol student that answers with {what}"
            call = functools.partial(subject.kd_step, frozen, learner, batch, **settings)
            found.append(oracles.refusal_complaint(name, call, *own_words))
        if any(done.gradients for done in learner.passes):
            found.append(f"a student that answers with {what} had a gradient before the refusal")
        if what != "NaN":
            module = subject.ModuleStudent(Constant(answer(right)), 2)
            name = f"a module student that answers with {what}"
            found.append(oracles.refusal_complaint(name, functools.partial(module.forward, batch), *own_words))
    complaints = [complaint for complaint in found if complaint]
    assert not complaints, "\n".join(complaints)


def falsify_unfit_settings_are_refused_by_the_step(subject: Any) -> None:
    """Vocabularies that differ, tokens without a row, labels or settings outside their domain; nothing was applied."""
    zeros = torch.zeros(2, 2, dtype=torch.float64)
    right = torch.tensor([[0, 1, 1]])
    usual = {"temperature": 1.0, "ce_weight": 0.5, "kd_weight": 0.5}
    found: list[str | None] = []
    cases: list[tuple[str, Tensor, Tensor, Tensor, dict[str, float], tuple[str, ...]]] = [
        ("a teacher of vocabulary 3", torch.zeros(2, 3).double(), right, right, usual, ("2", "3", "vocab")),
        ("a teacher of vocabulary 1", torch.zeros(2, 1).double(), right, right, usual, ("2", "1", "vocab")),
        ("a token without a row", zeros, torch.tensor([[0, 2, 1]]), right, usual, ("token 2",)),
        ("a negative token", zeros, torch.tensor([[0, -1, 1]]), right, usual, ("token -1",)),
        ("a label outside", zeros, right, torch.tensor([[0, 1, 2]]), usual, ("label 2",)),
        ("temperature 0", zeros, right, right, {**usual, "temperature": 0.0}, ("temperature",)),
        ("a negative weight", zeros, right, right, {**usual, "kd_weight": -1.0}, ("kd_weight",)),
    ]
    for what, teacher, tokens, labels, settings, words in cases:
        student = RecordingStudent(zeros)
        tables = subject.FixtureTeacher(teacher)
        batch = subject.Batch(tokens=tokens, labels=labels)
        found.append(
            oracles.refusal_complaint(
                what, lambda t=tables, s=student, b=batch, k=settings: subject.kd_step(t, s, b, **k), *words
            )
        )
        if any(done.gradients for done in student.passes):
            found.append(f"{what}: the student had a gradient before the refusal")
        if "vocabulary" in what and student.passes:
            found.append(f"{what}: the student ran its forward, though the two vocab_size already differ")
    learner = subject.FixtureStudent(zeros, 1.0)
    outside = subject.Batch(tokens=torch.tensor([[-1, 0]]), labels=torch.tensor([[0, 0]]))
    found.append(
        oracles.refusal_complaint("a student's token without a row", lambda: learner.forward(outside), "token -1")
    )
    found += [
        oracles.refusal_complaint(
            "labels of another shape", lambda: subject.Batch(tokens=right, labels=right[:, 1:]), "labels", "[1, 2]"
        ),
        oracles.refusal_complaint(
            "tokens that are floats", lambda: subject.Batch(tokens=right.double(), labels=right), "tokens", "float64"
        ),
        oracles.refusal_complaint(
            "tokens without a batch axis", lambda: subject.Batch(tokens=right[0], labels=right[0]), "tokens", "[3]"
        ),
        oracles.refusal_complaint(
            "a table without an axis", lambda: subject.FixtureTeacher(zeros[0]), "table", " is [2]"
        ),
        oracles.refusal_complaint(
            "tokens that are a list", lambda: subject.Batch(tokens=[[0]], labels=right), "tokens", "list"
        ),
        oracles.refusal_complaint("a table that is a list", lambda: subject.FixtureTeacher([[0.0]]), "table", "list"),
        oracles.refusal_complaint(
            "an endless learning rate", lambda: subject.FixtureStudent(zeros, math.inf), "learning_rate"
        ),
        oracles.refusal_complaint(
            "a gradient for a frozen module", lambda: _frozen(subject).backward(torch.zeros(1, 3, 2)), "no parameter"
        ),
        oracles.refusal_complaint(
            "a learning rate of NaN", lambda: subject.FixtureStudent(zeros, math.nan), "learning_rate"
        ),
        oracles.refusal_complaint(
            "a learning rate below 0", lambda: subject.FixtureStudent(zeros, -1.0), "learning_rate"
        ),
    ]
    complaints = [complaint for complaint in found if complaint]
    assert not complaints, "\n".join(complaints)
    subject.FixtureStudent(zeros, 0.0)  # no step at all is a rate too: a loss can be watched that way


def _frozen(subject: Any) -> Any:
    """A pass of a module none of whose parameters asks for a gradient."""
    module = nn.Embedding(2, 2).requires_grad_(False)
    tokens = torch.tensor([[0, 1, 1]])
    return subject.ModuleStudent(module, 2).forward(subject.Batch(tokens=tokens, labels=tokens))
