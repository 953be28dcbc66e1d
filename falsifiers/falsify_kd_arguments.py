"""Attacks on what a distillation loss does to its arguments: it only reads them, and asks nothing of the teacher.

The subject is that of `falsify_kd_loss`.
"""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.kd_comparison import assert_gradient_is_the_oracles, assert_loss_is_the_oracles
from falsifiers.strategies import KdCase, kd_cases


@given(case=kd_cases())
def falsify_only_the_student_gets_a_gradient(subject: Any, case: KdCase) -> None:
    """A teacher that asks for a gradient gets none, from loss or closed form."""
    student, teacher = case.student.clone().requires_grad_(), case.teacher.clone().requires_grad_()
    live = case.but(student=student, teacher=teacher)
    loss = live.loss(subject)
    if loss.sum.requires_grad:
        loss.sum.backward()
    assert teacher.grad is None, f"the teacher got the gradient {teacher.grad}; expected none"
    gradient = live.gradient(subject)
    assert not gradient.requires_grad, "the closed-form gradient hangs on a graph; expected a plain tensor"


@given(case=kd_cases())
def falsify_the_divergence_asks_nothing_of_the_teacher(subject: Any, case: KdCase) -> None:
    """`forward_kl` called on its own: a teacher that asks for a gradient gets no graph."""
    teacher = case.teacher[case.scored].clone().requires_grad_()
    divergence = subject.forward_kl(case.student[case.scored], teacher, case.temperature)
    assert not divergence.requires_grad, "the divergence hangs on the teacher's graph; expected a plain tensor"


@given(
    case=kd_cases(dtype=torch.float32),
    integers=st.sampled_from([torch.int64, torch.int32, torch.int16, torch.int8]),
)
def falsify_inputs_are_left_alone(subject: Any, case: KdCase, integers: torch.dtype) -> None:
    """No argument is written to, layout and width of labels don't matter, and the same call gives the same bits."""
    case = case.but(labels=case.labels.to(integers))
    strided = case.but(
        student=case.student.transpose(0, 2).contiguous().transpose(0, 2), teacher=case.teacher.mT.contiguous().mT
    )
    before = [x.clone() for x in (strided.student, strided.teacher, strided.labels)]
    answers = [(x.loss(subject).sum, x.gradient(subject)) for x in (strided, strided)]
    for name, x, was in zip(
        ("student", "teacher", "labels"), (strided.student, strided.teacher, strided.labels), before, strict=True
    ):
        assert torch.equal(x, was), f"{name} was {was.tolist()} and is {x.tolist()} after the call"
    assert torch.equal(answers[0][0], answers[1][0]) and torch.equal(answers[0][1], answers[1][1]), (
        f"the same call answered {answers[0]} and then {answers[1]}"
    )
    assert_loss_is_the_oracles(subject, strided, unit=2.0**-24)
    assert_gradient_is_the_oracles(subject, strided, unit=2.0**-24)
