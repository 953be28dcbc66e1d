"""Attacks on the evaluation on held-back text. The subject is `reference_trainer.training.evaluation`."""

from __future__ import annotations

import importlib
from functools import partial
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
    failed = ""
    try:
        subject.evaluate(teacher, learner(student), sequences_of(text, 2, 3, device), weights_at())
    except (RuntimeError, ValueError) as error:
        failed = f" after {error}"
    after = [part.training for part in student.modules()]
    assert after == before, f"training flags were {before} and are {after}{failed}"
    assert student.embedding.weight.grad is None and student.embedding.weight.requires_grad, "the student was changed"
    assert torch.is_grad_enabled(), f"gradients are disabled in the process{failed}"


@given(student=TABLE, teacher=TABLE, text=TEXTS, batch_size=st.sampled_from(BATCH_SIZES))
def falsify_evaluation_builds_no_graph(
    subject: Any, device: str, student: Tensor, teacher: Tensor, text: Tensor, batch_size: int
) -> None:
    kept: list[Tensor] = []
    module, sequences = Student(student, device), sequences_of(text, 2, batch_size, device)
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda tensor: tensor):
        subject.evaluate(Teacher(teacher, device), learner(module), sequences, weights_at())
    sizes = [tuple(each.shape) for each in kept]
    assert not kept, (
        f"evaluating {len(sequences)} sequences in batches of {batch_size} kept tensors of the sizes {sizes} for a "
        f"backward pass; expected none, because the student gets no gradient"
    )


@given(size=st.integers(0, 8), batch_size=st.sampled_from(BATCH_SIZES))
def falsify_metric_without_tokens_is_absent(subject: Any, size: int, batch_size: int) -> None:
    """A text shorter than a sequence has no loss, rather than a perfect 0."""
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


@given(text=TEXTS, larger=st.sampled_from(["student", "teacher"]))
def falsify_models_of_two_vocabularies_are_refused(subject: Any, text: Tensor, larger: str) -> None:
    sizes = {"student": VOCABULARY + (larger == "student"), "teacher": VOCABULARY + (larger == "teacher")}
    models = {name: _Untouched(size) for name, size in sizes.items()}
    call = partial(subject.evaluate, models["teacher"], models["student"], sequences_of(text, 2, 1), weights_at(1.0))
    oracles.assert_refused(f"a larger {larger}", call, *(f"{name} {size}" for name, size in sizes.items()))


class _Untouched:
    """A model that is never asked for logits."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def logits(self, batch: Any) -> Tensor:
        raise AssertionError("a forward runs before the vocabularies are compared")
