"""Attacks on the loss and gradient of a distillation step: shifted once, divided once, complete."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support import oracles
from falsifiers.support.comparison import assert_same_gradient
from falsifiers.support.steps import (
    SHIFTED,
    STEP,
    AnsweringTeacher,
    RecordingStudent,
    allowed_table,
    assert_result_is_the_oracles,
    batch_of,
    recorded_step,
    table_step,
)
from falsifiers.support.strategies import IGNORED, LOGITS, StepCase, step_cases


@given(case=step_cases(logits=LOGITS))
def falsify_step_against_oracle(subject: Any, device: str, case: StepCase) -> None:
    result, gradient = recorded_step(subject, case, device)
    assert_result_is_the_oracles(result, case)
    assert_same_gradient("the gradient", gradient, case.oracle_gradient(), case.shifted().allowed_gradient(), SHIFTED)


FLOATS = st.sampled_from([torch.float32, torch.bfloat16])


@given(case=step_cases(logits=LOGITS, dtype=torch.float32), student=FLOATS, teacher=FLOATS)
def falsify_step_in_low_precision(
    subject: Any, device: str, case: StepCase, student: torch.dtype, teacher: torch.dtype
) -> None:
    case = case.but(student=case.student.to(student), teacher=case.teacher.to(teacher))
    unit = 2.0**-24
    result, gradient = recorded_step(subject, case, device)
    assert_result_is_the_oracles(result, case, unit)
    assert_same_gradient(
        "the gradient", gradient, case.oracle_gradient(), case.shifted().allowed_gradient(unit), SHIFTED
    )


@given(case=step_cases(ce_weights=st.just(0.5), kd_weights=st.just(0.5)))
def falsify_exact_zero_set(subject: Any, device: str, case: StepCase) -> None:
    rank = torch.arange(case.student.shape[1], dtype=torch.float64)
    case = case.but(student=torch.zeros_like(case.student) + rank, teacher=torch.zeros_like(case.teacher) - rank)
    _, gradient = recorded_step(subject, case, device)
    seen = gradient.abs().sum(-1) > 0
    expected = torch.zeros_like(seen)
    expected[:, :-1] = case.labels[:, 1:] != IGNORED
    assert torch.equal(seen, expected), (
        f"with labels {case.labels.tolist()} the gradient is nonzero at {seen.tolist()}; expected {expected.tolist()} "
        f"(position i predicts label i + 1)"
    )


@given(case=step_cases(), value=st.sampled_from([1e3, math.nan, math.inf, -math.inf]))
def falsify_unscored_logits_never_reach_the_step(subject: Any, case: StepCase, value: float) -> None:
    dead = torch.ones_like(case.tokens, dtype=torch.bool)
    dead[:, :-1] = case.labels[:, 1:] == IGNORED
    live = case.student[case.tokens]
    answers = []
    taught = case.teacher[case.tokens]
    broken, broken_taught = (torch.where(dead[..., None], value, logits) for logits in (live, taught))
    for logits, teacher_logits in ((live, taught), (broken, broken_taught)):
        student = RecordingStudent(case.student, logits)
        teacher = AnsweringTeacher(case.teacher.shape[1], teacher_logits)
        result = subject.kd_step(teacher, student, batch_of(subject, case), **case.settings)
        gradient = student.passes[0].gradients[0].tolist()
        answers.append((result.loss, result.sum, result.count, result.metrics, gradient))
    assert answers[0] == answers[1], (
        f"the step changed from {answers[0]} to {answers[1]} when unscored logits were set to {value}"
    )


@given(case=step_cases(), learning_rate=st.sampled_from([1.0, 0.25, 3.0]))
def falsify_every_element_is_applied(subject: Any, device: str, case: StepCase, learning_rate: float) -> None:
    _, table = table_step(subject, case, learning_rate, device)
    allowed = allowed_table(case, learning_rate)
    assert_same_gradient("the student's table", table, case.oracle_table(learning_rate), allowed, STEP)


@given(case=step_cases())
def falsify_duplicate_batch(subject: Any, device: str, case: StepCase) -> None:
    twice = case.but(tokens=torch.cat([case.tokens] * 2), labels=torch.cat([case.labels] * 2))
    (once, table), (doubled, doubled_table) = (
        table_step(subject, case, 1.0, device),
        table_step(subject, twice, 1.0, device),
    )
    allowed = twice.shifted().allowed_nats()
    assert doubled.count == 2 * once.count, (
        f"count of the doubled batch is {doubled.count}; expected twice {once.count}"
    )
    oracles.assert_close("sum in nats", doubled.sum, 2 * once.sum, allowed, "twice the sum of one copy")
    oracles.assert_close("loss in nats per token", doubled.loss, once.loss, allowed, "the loss of one copy")
    assert_same_gradient(
        "the student's table", doubled_table, table, 2 * allowed_table(twice, 1.0), "the step of one copy"
    )


@given(
    tokens=st.lists(st.integers(0, 2), min_size=2, max_size=4),
    labels=st.lists(
        st.sampled_from([IGNORED, 256 + IGNORED, 0, 127, 128]) | st.integers(0, 199), min_size=4, max_size=4
    ),
    dtypes=st.tuples(*[st.sampled_from([torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])] * 2),
)
def falsify_every_integer_dtype(
    subject: Any, tokens: list[int], labels: list[int], dtypes: tuple[torch.dtype, torch.dtype]
) -> None:
    fits = torch.iinfo(dtypes[1])
    held = [label if fits.min <= label <= fits.max else 1 for label in labels[: len(tokens)]]
    held[-1] = abs(held[-1])  # at least one label is scored: -100 becomes 100
    student = torch.zeros(3, 200, dtype=torch.float64)
    student[0, 0] = student[1, 100] = student[2, 156] = 1.0
    wide = StepCase(torch.tensor([tokens]), torch.tensor([held]), student, student.flip(0), ce_weight=1.0)
    narrow = wide.but(tokens=wide.tokens.to(dtypes[0]), labels=wide.labels.to(dtypes[1]))
    result, table = table_step(subject, narrow, 1.0)
    assert_result_is_the_oracles(result, wide)
    what = f"the table after tokens {tokens} in {dtypes[0]}, labels {held} in {dtypes[1]}"
    assert_same_gradient(what, table, wide.oracle_table(1.0), allowed_table(wide, 1.0), STEP)


@given(case=step_cases(), token=st.integers(0, 3), weights=st.sampled_from([(1.0, 0.0), (0.0, 1.0)]))
def falsify_zero_weight_removes_its_term(
    subject: Any, device: str, case: StepCase, token: int, weights: tuple[float, float]
) -> None:
    student = case.student.clone()
    student[:, token % student.shape[1]] = -math.inf
    case = case.but(student=student, ce_weight=weights[0], kd_weight=weights[1])
    result, gradient = recorded_step(subject, case, device)
    assert_result_is_the_oracles(result, case)
    assert bool(gradient.isfinite().all()), f"the gradient is {gradient.tolist()}; expected finite numbers"
