"""Attacks on the divergence of rows, without weights and without the factor τ²."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given

from falsifiers.support import oracles
from falsifiers.support.comparison import ANYWHERE
from falsifiers.support.strategies import KdCase, kd_cases


@given(case=kd_cases())
def falsify_forward_kl_detaches_the_teacher(subject: Any, case: KdCase) -> None:
    """`forward_kl` has no graph for a teacher that requires a gradient."""
    teacher = case.teacher[case.scored].clone().requires_grad_()
    divergence = subject.forward_kl(case.student[case.scored], teacher, case.temperature)
    assert not divergence.requires_grad, "the divergence has the teacher's graph; expected none"


@given(case=kd_cases(banned=ANYWHERE))
def falsify_forward_kl_against_oracle(subject: Any, device: str, case: KdCase) -> None:
    """Each row is the oracle's divergence at τ, without the factor τ²: float64 [N], +inf for a banned token."""
    alone = case.but(ce_weight=0.0, kd_weight=1.0)
    student, teacher = (x[case.scored].to(device) for x in (case.student, case.teacher))
    seen = subject.forward_kl(student, teacher, case.temperature).cpu()
    assert (seen.dtype, seen.shape) == (torch.float64, (len(student),)), (
        f"the divergence is {seen.dtype} {list(seen.shape)}; expected float64 [{len(student)}]"
    )
    expected = [oracles.forward_kl(s, t, case.temperature) for _, s, t, _ in case.rows()]
    allowed = alone.allowed_nats() / case.temperature**2
    oracles.assert_all_close("divergence", seen.tolist(), expected, allowed, "KL(teacher ‖ student) at τ")
