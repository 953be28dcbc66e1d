"""Attacks on the input checks of a distillation step: tokens, labels and settings outside the domain."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from falsifiers.support.steps import USUAL, ZEROS, RecordingStudent, complaints, step_complaints

RIGHT = torch.tensor([[0, 1, 1]])


INVALID_STEPS: list[tuple[str, Tensor, Tensor, Tensor, dict[str, float], tuple[str, ...]]] = [
    ("a teacher of vocabulary 3", torch.zeros(2, 3).double(), RIGHT, RIGHT, USUAL, ("student 2", "teacher 3")),
    ("a token without a row", ZEROS, torch.tensor([[0, 2, 1]]), RIGHT, USUAL, ("token 2",)),
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


PARTS: list[tuple[str, Callable[[Any], Any], tuple[str, ...]]] = [
    ("labels of another shape", lambda s: s.Batch(tokens=RIGHT, labels=RIGHT[:, 1:]), ("labels", "[1, 2]")),
    ("labels that are floats", lambda s: s.Batch(tokens=RIGHT, labels=RIGHT.double()), ("labels of", "float64")),
    ("tokens that are floats", lambda s: s.Batch(tokens=RIGHT.double(), labels=RIGHT), ("tokens", "float64")),
    ("tokens without a batch axis", lambda s: s.Batch(tokens=RIGHT[0], labels=RIGHT[0]), ("tokens", "[3]")),
]


def falsify_invalid_steps_are_refused(subject: Any) -> None:
    found = [complaint for case in INVALID_STEPS for complaint in _invalid_step_complaints(subject, *case)]
    for what, call, words in PARTS:
        found += complaints(what, functools.partial(call, subject), words)
    assert not found, "\n".join(found)
