"""Attacks on the evaluation on held-back text. The subject is `reference_trainer.training.evaluation`."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.evaluation.cases import (
    BATCH_SIZES,
    TABLE,
    TEXTS,
    VOCABULARY,
    Student,
    Teacher,
    assert_is_the_oracles,
    cases_of,
    entropy_and_agreement,
    learner,
    sequences_of,
    weights_at,
)
from falsifiers.support import oracles
from falsifiers.support.fake_device import DEVICE, FakeDevice, complaint
from falsifiers.support.strategies import TEMPERATURES

METRICS = ["agreement", "hard_loss", "kl_at_1", "kl_at_T", "soft_loss", "teacher_entropy", "teacher_loss"]


@given(student=TABLE, teacher=TABLE, text=TEXTS, length=st.integers(2, 6), temperature=TEMPERATURES)
def falsify_evaluation_does_not_depend_on_batch_size(
    subject: Any, device: str, student: Tensor, teacher: Tensor, text: Tensor, length: int, temperature: float
) -> None:
    text = torch.cat((text, text[:1].expand(max(0, length - len(text)))))
    for batch_size in BATCH_SIZES:
        sequences = sequences_of(text, length, batch_size, device)
        models = Teacher(teacher, device), learner(Student(student, device))
        seen = subject.evaluate(*models, sequences, weights_at(temperature))
        assert sorted(seen) == METRICS, f"metrics in batches of {batch_size} are {sorted(seen)}; expected {METRICS}"
        for name, value in entropy_and_agreement(student, teacher, text, length).items():
            what, allowed = f"{name} in batches of {batch_size}", 1e-12 * len(text) * (name != "agreement")
            oracles.assert_close(what, seen[name].sum, value, allowed, "the sum over all scored tokens")
        for name, case in cases_of(student, teacher, text, length, temperature).items():
            assert_is_the_oracles(f"{name} in batches of {batch_size}", seen[name], case)


@given(
    text=TEXTS, flags=st.lists(st.booleans(), min_size=6, max_size=6), fails_at=st.integers(0, 3), whose=st.booleans()
)
def falsify_evaluation_does_not_change_student(
    subject: Any, device: str, text: Tensor, flags: list[bool], fails_at: int, whose: bool
) -> None:
    table = torch.zeros(VOCABULARY, VOCABULARY)
    student = Student(table, device, fails_at if whose else 0)
    teacher = Teacher(torch.full_like(table, torch.nan) if fails_at and not whose else table, device)
    for part, flag in zip(student.modules(), flags, strict=False):
        part.training = flag
    before = [part.training for part in student.modules()]
    failed, kept = "", list[Tensor]()
    try:
        with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda tensor: tensor):
            subject.evaluate(teacher, learner(student), sequences_of(text, 2, 3, device), weights_at())
    except (RuntimeError, ValueError) as error:
        failed = f" after {error}"
    after = [part.training for part in student.modules()]
    assert after == before, f"training flags were {before} and are {after}{failed}"
    assert student.embedding.weight.grad is None and student.embedding.weight.requires_grad, "the student was changed"
    assert not kept, f"an evaluation kept {len(kept)} tensors for a backward pass"
    assert torch.is_grad_enabled(), f"gradients are disabled in the process{failed}"


@given(size=st.integers(0, 8), batch_size=st.sampled_from(BATCH_SIZES))
def falsify_metric_without_tokens_is_absent(subject: Any, size: int, batch_size: int) -> None:
    table = torch.zeros(VOCABULARY, VOCABULARY)
    sequences = sequences_of(torch.zeros(size, dtype=torch.int64), 9, batch_size)
    seen = subject.evaluate(Teacher(table), learner(Student(table)), sequences, weights_at())
    assert seen == {}, f"{size} bytes hold no sequence of 9, and the evaluation reports {seen}"


@given(text=TEXTS, batch_size=st.sampled_from(BATCH_SIZES), teachers=st.sampled_from(["cpu", DEVICE]))
def falsify_evaluation_mixes_no_devices(subject: Any, text: Tensor, batch_size: int, teachers: str) -> None:
    providers = importlib.import_module("reference_trainer.distillation.providers")
    seen: dict[str, Any] = {}
    with FakeDevice():
        table = torch.zeros(VOCABULARY, VOCABULARY)
        teacher = providers.ModuleTeacher(Student(table, teachers), VOCABULARY)
        student, sequences = Student(table, DEVICE), sequences_of(text, 2, batch_size, DEVICE)
        what = f"the student is on {DEVICE}, the teacher on {teachers}"
        models = teacher, learner(student)
        raised = complaint(what, lambda: seen.update(subject.evaluate(*models, sequences, weights_at())))
    assert raised is None, raised
    assert sorted(seen) == METRICS, f"{what}; the metrics are {sorted(seen)}"
