"""Attacks on the devices inside a distillation step, with CUDA tensors that need no GPU."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.cases import StepCase
from falsifiers.support.comparison import assert_same_gradient
from falsifiers.support.fake_cuda import fake_cuda
from falsifiers.support.steps import STEP, allowed_table, assert_result_is_the_oracles, batch_of, embedding
from falsifiers.support.strategies import step_cases

PLACES = st.sampled_from(["cpu", "cuda"])


@given(case=step_cases(), teacher_on=PLACES, batch_on=PLACES)
def falsify_table_step_stays_on_its_device(subject: Any, case: StepCase, teacher_on: str, batch_on: str) -> None:
    with fake_cuda():
        student = subject.FixtureStudent(case.student.to("cuda"), 1.0)
        teacher = subject.FixtureTeacher(case.teacher.to(teacher_on))
        result = subject.kd_step(teacher, student, batch_of(subject, case, batch_on), **case.settings)
        table = student.logits_table
        assert table.is_cuda, f"the student's table is on {table.device}; expected cuda:0"
        table = table.cpu()
    assert_result_is_the_oracles(result, case)
    assert_same_gradient("the student's table", table, case.oracle_table(1.0), allowed_table(case, 1.0), STEP)


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
