"""Attacks on how a distillation loss treats its arguments: it modifies none and detaches the teacher."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.comparison import assert_gradient_is_the_oracles, assert_loss_is_the_oracles
from falsifiers.support.strategies import KdCase, kd_cases


@given(case=kd_cases())
def falsify_teacher_gets_no_gradient(subject: Any, case: KdCase) -> None:
    student, teacher = case.student.clone().requires_grad_(), case.teacher.clone().requires_grad_()
    live = case.but(student=student, teacher=teacher)
    loss = live.loss(subject)
    if loss.sum.requires_grad:
        loss.sum.backward()
    assert teacher.grad is None, f"the teacher's .grad is {teacher.grad}; expected None"
    gradient = live.gradient(subject)
    assert not gradient.requires_grad, "the closed-form gradient has a graph; expected none"


@given(
    case=kd_cases(dtype=torch.float32),
    integers=st.sampled_from([torch.int64, torch.int32, torch.int16, torch.int8]),
)
def falsify_inputs_are_not_modified(subject: Any, case: KdCase, integers: torch.dtype) -> None:
    case = case.but(labels=case.labels.to(integers))
    strided = case.but(
        student=case.student.transpose(0, 2).contiguous().transpose(0, 2), teacher=case.teacher.mT.contiguous().mT
    )
    before = [x.clone() for x in (strided.student, strided.teacher, strided.labels)]
    answers = [(x.loss(subject).sum, x.gradient(subject)) for x in (strided, strided)]
    for name, x, was in zip(
        ("student", "teacher", "labels"), (strided.student, strided.teacher, strided.labels), before, strict=True
    ):
        assert torch.equal(x, was), f"{name} changed from {was.tolist()} to {x.tolist()} in the call"
    assert torch.equal(answers[0][0], answers[1][0]) and torch.equal(answers[0][1], answers[1][1]), (
        f"equal calls returned {answers[0]} and {answers[1]}"
    )
    assert_loss_is_the_oracles(subject, strided, unit=2.0**-24)
    assert_gradient_is_the_oracles(subject, strided, unit=2.0**-24)
