"""Attacks on the loss and gradient of a step: shifted once, divided once, complete, on the student's device."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.comparison import assert_same_gradient
from falsifiers.support.fake_cuda import fake_cuda
from falsifiers.support.steps import (
    SHIFTED,
    STEP,
    allowed_table,
    assert_result_is_the_oracles,
    batch_of,
    embedding,
    recorded_step,
    table_step,
)
from falsifiers.support.strategies import LOGITS, StepCase, step_cases


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


@given(case=step_cases(), learning_rate=st.sampled_from([1.0, 0.25, 3.0]))
def falsify_every_element_is_applied(subject: Any, device: str, case: StepCase, learning_rate: float) -> None:
    _, table = table_step(subject, case, learning_rate, device)
    allowed = allowed_table(case, learning_rate)
    assert_same_gradient("the student's table", table, case.oracle_table(learning_rate), allowed, STEP)


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


PLACES = st.sampled_from(["cpu", "cuda"])


@given(case=step_cases(), teacher_on=PLACES, batch_on=PLACES)
def falsify_module_step_stays_on_its_device(subject: Any, case: StepCase, teacher_on: str, batch_on: str) -> None:
    V = case.student.shape[1]
    with fake_cuda():
        module = embedding(case.student, "cuda")
        teacher = subject.ModuleTeacher(embedding(case.teacher, teacher_on), V)
        student, batch = subject.ModuleStudent(module, V), batch_of(subject, case, batch_on)
        result = subject.kd_step(teacher, student, batch, **case.settings)
        gradient = module.weight.grad
        assert gradient is not None and gradient.is_cuda, f"the gradient is {gradient}; expected one on cuda:0"
        stepped = case.student - gradient.cpu()
    assert_result_is_the_oracles(result, case)
    allowed = 2 * allowed_table(case, 1.0)
    assert_same_gradient("the table less its .grad", stepped, case.oracle_table(1.0), allowed, STEP)
