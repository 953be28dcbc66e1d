"""Attacks on the loss between vocabularies of different sizes.

The subject is `reference_trainer.distillation.vocabulary`.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.comparison import assert_same_gradient
from falsifiers.support.steps import SHIFTED, assert_result_is_the_oracles, embedding
from falsifiers.teachers.cases import Pair, pairs, table_of

TRUNCATE = {"teacher": "truncate", "student": "truncate-student"}


def assert_step_of_the_shared_tokens(subject: Any, pair: Pair, mode: str, device: str, vocab_size: int) -> None:
    """Assert that result and gradient are the oracle's for tables of this size; other columns have no gradient."""
    result, gradient = pair.step(subject, mode, device)
    case = pair.resized(vocab_size)
    assert_result_is_the_oracles(result, case)
    own = pair.student.shape[1]
    expected = torch.zeros(*pair.tokens.shape, own, dtype=torch.float64)
    kept = min(own, vocab_size)
    expected[..., :kept] = case.oracle_gradient()[..., :kept]
    allowed = case.shifted().allowed_gradient()
    assert_same_gradient(f"{mode}, sizes {pair.sizes}: the gradient", gradient, expected, allowed, SHIFTED)
    assert not bool(gradient[..., kept:].any()), (
        f"{mode}, sizes {pair.sizes}: columns from {kept} have the gradient {gradient[..., kept:].tolist()}; expected 0"
    )


@given(data=st.data(), larger=st.sampled_from(sorted(TRUNCATE)))
def falsify_truncated_vocabulary(subject: Any, device: str, data: st.DataObject, larger: str) -> None:
    """Loss and gradient are those of both tables cut to the shared tokens, so both softmaxes sum to 1 over them."""
    pair = data.draw(pairs(larger))
    assert_step_of_the_shared_tokens(subject, pair, TRUNCATE[larger], device, min(pair.sizes))


@given(pair=pairs("student"))
def falsify_padded_teacher(subject: Any, device: str, pair: Pair) -> None:
    assert_step_of_the_shared_tokens(subject, pair, "pad", device, max(pair.sizes))


@given(pair=pairs("teacher"), label=st.none() | st.integers(0, 3))
def falsify_padded_student(subject: Any, device: str, pair: Pair, label: int | None) -> None:
    """The student gives no probability to the tokens it lacks.

    If the teacher bans them too, loss and gradient are those of the shared tokens, and +inf with such a label. If the
    teacher does not, the loss is +inf. The gradient is finite.
    """
    own = pair.student.shape[1]
    banned = pair.but(teacher=table_of(pair.teacher[:, :own], pair.teacher.shape[1]))
    assert_step_of_the_shared_tokens(subject, banned, "pad", device, own)
    result, gradient = pair.step(subject, "pad", device)
    of = f"pad, sizes {pair.sizes}"
    assert result.sum == math.inf, (
        f"{of}: the teacher's probability of missing tokens costs {result.sum} nats, not +inf"
    )
    assert bool(gradient.isfinite().all()), f"{of}: the gradient is {gradient.tolist()}"
    if label is not None:
        labels = pair.labels.clone()
        labels[0, 1] = min(own + label, pair.teacher.shape[1] - 1)
        result, gradient = banned.but(labels=labels).step(subject, "pad", device)
        assert result.sum == math.inf, (
            f"{of}: the label {int(labels[0, 1])}, which the student lacks, costs {result.sum}"
        )
        assert bool(gradient.isfinite().all()), f"{of}: the gradient is {gradient.tolist()}"


@given(pair=pairs("teacher"), mode=st.sampled_from(["truncate", "truncate-student", "pad"]))
def falsify_equal_vocabularies_are_unchanged(subject: Any, pair: Pair, mode: str) -> None:
    providers = importlib.import_module("reference_trainer.distillation.providers")
    teacher, student = providers.FixtureTeacher(pair.student), providers.FixtureStudent(pair.student, 1.0)
    seen = subject.share_vocabulary(teacher, student, mode)
    assert seen[0] is teacher and seen[1] is student, f"{mode} wraps models of equal vocabularies: {seen}"


@given(data=st.data(), larger=st.sampled_from(sorted(TRUNCATE)), padded=st.booleans())
def falsify_module_gradients(subject: Any, device: str, data: st.DataObject, larger: str, padded: bool) -> None:
    pair = data.draw(pairs(larger))
    providers = importlib.import_module("reference_trainer.distillation.providers")
    mode = "pad" if padded else TRUNCATE[larger]
    if mode == "pad" and larger == "teacher":
        pair = pair.but(teacher=table_of(pair.teacher[:, : pair.student.shape[1]], pair.teacher.shape[1]))
    module = embedding(pair.student, device)
    teacher, student = subject.share_vocabulary(
        providers.ModuleTeacher(embedding(pair.teacher, device), pair.teacher.shape[1]),
        providers.ModuleStudent(module, pair.student.shape[1]),
        mode,
    )
    providers.kd_step(teacher, student, providers.Batch(tokens=pair.tokens, labels=pair.labels), **pair.settings)
    assert module.weight.grad is not None, f"{mode}, sizes {pair.sizes}: the module has no gradient"
    own, common = pair.student.shape[1], min(pair.sizes) if mode != "pad" else max(pair.sizes)
    case = pair.resized(common)
    expected = torch.zeros_like(pair.student)
    kept = min(own, common)
    expected[:, :kept].index_add_(0, pair.tokens.flatten(), case.oracle_gradient()[..., :kept].flatten(0, 1))
    allowed = pair.tokens.numel() * 2 * case.shifted().allowed_gradient()
    assert_same_gradient(
        f"{mode}, sizes {pair.sizes}: .grad of the table", module.weight.grad.cpu(), expected, allowed, SHIFTED
    )


@given(larger=st.sampled_from(sorted(TRUNCATE)), padded=st.booleans(), data=st.data())
def falsify_logits_keep_their_dtype(subject: Any, larger: str, padded: bool, data: st.DataObject) -> None:
    pair = data.draw(pairs(larger))
    providers = importlib.import_module("reference_trainer.distillation.providers")
    batch = providers.Batch(tokens=pair.tokens, labels=pair.labels)
    mode = "pad" if padded else TRUNCATE[larger]
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        teacher, student = subject.share_vocabulary(
            providers.FixtureTeacher(pair.teacher.to(dtype)),
            providers.FixtureStudent(pair.student.to(dtype), 1.0),
            mode,
        )
        seen = teacher.logits(batch).dtype, student.forward(batch).logits.dtype
        assert seen == (dtype, dtype), f"{mode}, sizes {pair.sizes}: logits in {dtype} become {seen}"
