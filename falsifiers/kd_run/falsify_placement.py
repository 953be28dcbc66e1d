"""Attacks on the placement of a step's models: their devices and dtypes."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from torch import Tensor, nn

from falsifiers.support.comparison import assert_same_gradient
from falsifiers.support.steps import STEP, allowed_table, assert_result_is_the_oracles, batch_of, embedding
from falsifiers.support.strategies import StepCase, step_cases

BFLOAT16_ROUNDOFF = 2.0**-8


class Elsewhere(nn.Module):
    """Record the devices of its tokens. Its parameter is on the `meta` device, which exists on every machine."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1, device="meta"))
        self.vocab_size = vocab_size
        self.devices: list[str] = []

    def forward(self, tokens: Tensor) -> Tensor:
        self.devices.append(tokens.device.type)
        return torch.zeros(*tokens.shape, self.vocab_size)


@given(case=step_cases())
def falsify_tokens_are_moved_to_the_module(subject: Any, case: StepCase) -> None:
    batch, V = batch_of(subject, case), case.student.shape[1]
    for name, ask in (
        ("teacher", lambda module: subject.ModuleTeacher(module, V).logits(batch)),
        ("student", lambda module: subject.ModuleStudent(module, V).forward(batch)),
    ):
        module = Elsewhere(V)
        ask(module)
        assert module.devices == ["meta"], (
            f"the {name}'s module on meta got its tokens on {module.devices}; expected one forward, on meta"
        )


@given(case=step_cases(dtype=torch.bfloat16))
def falsify_students_in_bfloat16(subject: Any, case: StepCase) -> None:
    teacher, batch = subject.FixtureTeacher(case.teacher), batch_of(subject, case)
    fixture = subject.FixtureStudent(case.student, 1.0)
    module = embedding(case.student)
    for student in (fixture, subject.ModuleStudent(module, case.student.shape[1])):
        assert_result_is_the_oracles(subject.kd_step(teacher, student, batch, **case.settings), case, 2.0**-24)
    assert module.weight.grad is not None, "the student's parameters have no gradient"
    stepped = case.student.double() - module.weight.grad.double()
    allowed = 2 * allowed_table(case, 1.0, BFLOAT16_ROUNDOFF)
    for name, table, dtype in (
        ("the student's table", fixture.logits_table, fixture.logits_table.dtype),
        ("the module's table less its .grad", stepped, module.weight.grad.dtype),
    ):
        assert dtype is torch.bfloat16, f"{name} is {dtype}; expected bfloat16, as the student"
        assert_same_gradient(name, table.double(), case.oracle_table(1.0), allowed, STEP)
