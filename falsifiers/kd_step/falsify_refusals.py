"""Attacks on the input checks of a distillation step: tokens, labels and settings outside the domain."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from falsifiers.support.steps import USUAL, ZEROS, RecordingStudent, complaints, step_complaints

RIGHT = torch.tensor([[0, 1, 1]])


INVALID_STEPS: list[tuple[str, Tensor, Tensor, Tensor, dict[str, float], tuple[str, ...]]] = [
    ("a teacher of vocabulary 3", torch.zeros(2, 3).double(), RIGHT, RIGHT, USUAL, ("student 2", "teacher 3")),
    ("a teacher of vocabulary 1", torch.zeros(2, 1).double(), RIGHT, RIGHT, USUAL, ("student 2", "teacher 1")),
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
    yield from step_complaints(subject, what, teacher, student, batch, settings, words)
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
    ("labels that are floats", lambda s: s.Batch(tokens=RIGHT, labels=RIGHT.double()), ("labels of", "float64")),
    ("labels that are a list", lambda s: s.Batch(tokens=RIGHT, labels=[[0]]), ("labels of", "list")),
    ("tokens that are floats", lambda s: s.Batch(tokens=RIGHT.double(), labels=RIGHT), ("tokens", "float64")),
    ("tokens without a batch axis", lambda s: s.Batch(tokens=RIGHT[0], labels=RIGHT[0]), ("tokens", "[3]")),
    ("a table without an axis", lambda s: s.FixtureTeacher(ZEROS[0]), ("table", " [2]")),
    ("tokens that are a list", lambda s: s.Batch(tokens=[[0]], labels=RIGHT), ("tokens", "list")),
    ("a table that is a list", lambda s: s.FixtureTeacher([[0.0]]), ("table", "list")),
    ("an infinite learning rate", lambda s: s.FixtureStudent(ZEROS, math.inf), ("learning_rate",)),
    ("a gradient for a frozen module", _gradient_for_a_frozen_module, ()),
    ("a learning rate of NaN", lambda s: s.FixtureStudent(ZEROS, math.nan), ("learning_rate",)),
    ("a learning rate below 0", lambda s: s.FixtureStudent(ZEROS, -1.0), ("learning_rate",)),
]


def falsify_invalid_steps_are_refused(subject: Any) -> None:
    """Different vocabularies, tokens without a row, labels and settings outside their domain are refused."""
    found = [complaint for case in INVALID_STEPS for complaint in _invalid_step_complaints(subject, *case)]
    for what, call, words in PARTS:
        found += complaints(what, functools.partial(call, subject), words)
    assert not found, "\n".join(found)
    subject.FixtureStudent(ZEROS, 0.0)  # a learning rate of 0 is valid
