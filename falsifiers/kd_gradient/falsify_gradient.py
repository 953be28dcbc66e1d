"""Attacks on the closed-form gradient of a distillation loss."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.comparison import IGNORE_INDICES, assert_same_gradient
from falsifiers.support.strategies import KdCase, kd_cases, unit_of


@given(
    case=kd_cases(banned=st.sampled_from(["none", "none", "same"]), ignored=IGNORE_INDICES),
    distance=st.sampled_from([1.0, 2.0**-26]),
)
def falsify_gradient_against_autograd(subject: Any, device: str, case: KdCase, distance: float) -> None:
    # Where a student is close to its teacher, a divergence may round below 0; clamping it would lose the gradient.
    apart = torch.where(case.teacher.isinf(), 0.0, case.student - case.teacher)
    case = case.but(student=case.teacher + distance * apart)
    seen, expected = case.gradient(subject, device), case.autograd(subject, device)
    assert_same_gradient(
        "the gradient",
        seen,
        expected,
        2 * case.allowed_gradient(unit_of(subject)),
        "autograd of the subject's own loss",
    )
