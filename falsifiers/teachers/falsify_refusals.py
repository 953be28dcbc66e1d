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
    for mode, sizes in (("truncate", (small, large)), ("truncate-student", (large, small))):
        student = RecordingStudent(_table(sizes[1]))
        raised = oracles.refusal_complaint(
            f"{mode} with a teacher of {sizes[0]} and a student of {sizes[1]} tokens",
            lambda mode=mode, sizes=sizes, student=student: subject.share_vocabulary(
                AnsweringTeacher(sizes[0], None), student, mode
            ),
            f"mode '{mode}'",
            f"teacher vocab_size {sizes[0]}, student vocab_size {sizes[1]};",
            "'pad'",
            kind=errors.VocabularyError,
        )
        assert raised is None, raised
        assert not student.passes, f"{mode} ran {len(student.passes)} forwards before the refusal"


def falsify_unknown_modes_are_refused(subject: Any) -> None:
    errors = importlib.import_module("reference_trainer.errors")
    for sizes in ((2, 2), (2, 3), (3, 2)):
        for mode in ("cut", "", "TRUNCATE", "zero", None, True, 0):
            raised = oracles.refusal_complaint(
                f"mode {mode!r} for sizes {sizes}",
                lambda mode=mode, sizes=sizes: subject.share_vocabulary(
                    AnsweringTeacher(sizes[0], None), RecordingStudent(_table(sizes[1])), mode
                ),
                repr(mode),
                "truncate, truncate-student, pad",
                kind=errors.SettingError,
            )
            assert raised is None, raised


@given(
    native=st.integers(2, 6),
    other=st.integers(2, 6),
    mode=st.sampled_from(["truncate", "truncate-student", "pad"]),
    drift=st.sampled_from([-1, 1]),
)
def falsify_drift_of_the_native_vocabulary_is_refused(
    subject: Any, native: int, other: int, mode: str, drift: int
) -> None:
    """A wrapped model whose logits are wider or narrower than its `vocab_size` is refused before any gradient.

    Resizing must not hide that config and checkpoint differ.
    """
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


@given(own=st.integers(2, 5), more=st.integers(1, 3), widens=st.booleans())
def falsify_a_pass_takes_one_gradient_of_its_logits(subject: Any, own: int, more: int, widens: bool) -> None:
    providers = importlib.import_module("reference_trainer.distillation.providers")
    mode, size = ("pad", own + more) if widens else ("truncate-student", own)
    width = own if widens else own + more
    table = providers.FixtureStudent(_table(width), 1.0)
    _, student = subject.share_vocabulary(AnsweringTeacher(size, None), table, mode)
    assert student.vocab_size == size, f"the student has vocab_size {student.vocab_size}; expected {size}"
    done = student.forward(providers.Batch(tokens=TOKENS, labels=TOKENS))
    for shape in ((2, 3, width), (2, 3, size + 1), (2, 3, size - 1), (2, 3), (1, 3, size), (2, 1, size)):
        raised = oracles.refusal_complaint(
            f"{mode}: a gradient {list(shape)} for logits [2, 3, {size}]",
            lambda shape=shape: done.backward(torch.ones(shape)),
            f"shape {list(shape)}, the logits [2, 3, {size}];",
        )
        assert raised is None, raised
    done.backward(torch.ones(2, 3, size, dtype=torch.float64))
    seen = table.logits_table
    assert seen[0].tolist() == [-2.0 * (v < size) for v in range(width)], f"row 0 of the student is {seen[0].tolist()}"
    raised = oracles.refusal_complaint(
        "a second gradient", lambda: done.backward(torch.ones(2, 3, size)), "already", kind=RuntimeError
    )
    assert raised is None, raised
