"""Attacks on the side effects of a teacher's forward."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.support.comparison import assert_same_gradient
from falsifiers.support.steps import allowed_table, assert_result_is_the_oracles, batch_of, embedding
from falsifiers.support.strategies import StepCase, step_cases


class Lazy(nn.Module):
    """A module that builds a constant in its first forward and keeps it, as rotary embeddings do."""

    def __init__(self) -> None:
        super().__init__()
        self.scale: Tensor | None = None

    def forward(self, hidden: Tensor) -> Tensor:
        if self.scale is None:
            self.scale = torch.full(hidden.shape[-1:], 2.0, dtype=hidden.dtype, device=hidden.device)
        return hidden * self.scale


@given(case=step_cases(), steps=st.integers(1, 2))
def falsify_teacher_forward_has_no_side_effects(subject: Any, device: str, case: StepCase, steps: int) -> None:
    """A tensor that a shared module keeps from the teacher's forward can be used in the student's graph.

    The teacher's logits are an ordinary tensor; its forward draws no random number and leaves gradients enabled.
    """
    body, V = Lazy(), case.student.shape[1]
    embeddings = [embedding(x, device) for x in (case.student, case.teacher)]
    student = subject.ModuleStudent(nn.Sequential(embeddings[0], body), V)
    teacher = subject.ModuleTeacher(nn.Sequential(embeddings[1], body), V)
    batch, random = batch_of(subject, case, device), torch.get_rng_state()
    answer = teacher.logits(batch)
    assert torch.is_grad_enabled(), "gradients are disabled after the teacher's forward; expected enabled"
    assert torch.equal(random, torch.get_rng_state()), "the teacher's forward changed the global random state"
    doubled = case.but(student=2 * case.student, teacher=2 * case.teacher)
    try:
        for _ in range(steps):
            assert_result_is_the_oracles(subject.kd_step(teacher, student, batch, **case.settings), doubled)
    except RuntimeError as e:
        raise AssertionError(
            f"the student cannot use a tensor that a shared module built in the teacher's forward: {e}"
        ) from e
    assert not answer.is_inference(), "the teacher's logits are an inference tensor, which cannot be saved for backward"
    assert embeddings[0].weight.grad is not None, "the student's parameters have no gradient"
    expected = 2 * steps * (doubled.student - doubled.oracle_table(1.0))
    allowed = 4 * steps * allowed_table(doubled, 1.0)
    assert_same_gradient(".grad of the table", embeddings[0].weight.grad.cpu(), expected, allowed, "2 d loss/d logit")
