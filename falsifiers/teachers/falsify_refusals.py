"""Attacks on refusals around two vocabularies. The subject is `reference_trainer.distillation.vocabulary`."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support import oracles
from falsifiers.support.steps import USUAL, AnsweringTeacher, RecordingStudent

TOKENS = torch.tensor([[0, 1, 1], [1, 0, 1]])


def _table(width: int) -> torch.Tensor:
    return torch.zeros(2, width, dtype=torch.float64)


@given(small=st.integers(1, 9), more=st.integers(1, 9))
def falsify_truncation_of_the_smaller_vocabulary_is_refused(subject: Any, small: int, more: int) -> None:
    errors = importlib.import_module("reference_trainer.errors")
    large = small + more
    cut = f"teacher vocab_size {small}, student vocab_size {large};", f"teacher vocab_size {large}, student"
    for mode, sizes, kind, words in (
        ("truncate", (small, large), errors.VocabularyError, (cut[0], "'pad'")),
        ("truncate-student", (large, small), errors.VocabularyError, (cut[1], "'pad'")),
        ("cut", (small, large), errors.SettingError, ("truncate, truncate-student, pad",)),
        ("cut", (small, small), errors.SettingError, ("truncate, truncate-student, pad",)),
    ):
        student = RecordingStudent(_table(sizes[1]))
        raised = oracles.refusal_complaint(
            f"{mode} with a teacher of {sizes[0]} and a student of {sizes[1]} tokens",
            lambda mode=mode, sizes=sizes, student=student: subject.share_vocabulary(
                AnsweringTeacher(sizes[0], None), student, mode
            ),
            f"'{mode}'",
            *words,
            kind=kind,
        )
        assert raised is None, raised
        assert not student.passes, f"{mode} ran {len(student.passes)} forwards before the refusal"


@given(
    native=st.integers(2, 6),
    other=st.integers(2, 6),
    mode=st.sampled_from(["truncate", "truncate-student", "pad"]),
    drift=st.sampled_from([-1, 1]),
)
def falsify_drift_of_the_native_vocabulary_is_refused(
    subject: Any, native: int, other: int, mode: str, drift: int
) -> None:
    step = importlib.import_module("reference_trainer.distillation.step")
    protocols = importlib.import_module("reference_trainer.distillation.protocols")
    batch = protocols.Batch(tokens=TOKENS, labels=TOKENS)
    logits = torch.zeros(2, 3, native + drift, dtype=torch.float64)
    for who, teacher, student in (
        ("teacher", AnsweringTeacher(native, logits), RecordingStudent(_table(other))),
        ("student", AnsweringTeacher(other, torch.zeros(2, 3, other)), RecordingStudent(_table(native), logits)),
    ):
        sizes = teacher.vocab_size, student.vocab_size
        if (mode == "truncate" and sizes[0] < sizes[1]) or (mode == "truncate-student" and sizes[0] > sizes[1]):
            continue
        models = subject.share_vocabulary(teacher, student, mode)
        raised = oracles.refusal_complaint(
            f"{mode}: a {who} of {native} tokens with logits of {native + drift}",
            lambda models=models: step.kd_step(*models, batch, **USUAL),
            f"the {who} returned logits for a vocabulary of {native + drift}, expected vocab_size {native}",
        )
        assert raised is None, raised
        assert not any(done.gradients for done in student.passes), f"{mode}: the student got a gradient before"
