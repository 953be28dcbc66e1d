"""An attack on the relative difference between the closed-form gradient and automatic differentiation.

The subject is a module with `relative_difference` and `AGREE`, as `distillation.gradcheck`, which calls the
`losses` in it.
"""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support.strategies import KdCase, kd_cases


@given(
    case=kd_cases(dtype=torch.float32) | kd_cases(dtype=torch.float64),
    off=st.sampled_from([0.0, 1e-6, 0.5, 3.0]),
    asking=st.booleans(),
)
def falsify_difference_is_relative(subject: Any, case: KdCase, off: float, asking: bool) -> None:
    """An error of `off` in one element is reported relative to the norm of the gradient, or of its terms.

    A correct gradient differs by at most `AGREE`, also for float32 logits; the caller's tensors are unchanged.
    """
    right = subject.losses.kd_logit_gradient

    def wrong(*tensors: Tensor, **settings: float) -> Tensor:
        gradient: Tensor = right(*tensors, **settings)
        gradient.view(-1)[:1] += off
        return gradient

    student = case.student.clone().requires_grad_(asking)
    with mock.patch.object(subject.losses, "kd_logit_gradient", wrong):
        seen = subject.relative_difference(student, case.teacher, case.labels, **case.settings)
    terms = (case.ce_weight + case.kd_weight * case.temperature) * math.sqrt(max(1, int(case.scored.sum())))
    scale = max(float(case.oracle_gradient().norm()), terms)
    expected = off / scale if scale else math.inf if off else 0.0
    assert type(seen) is float, f"the difference is a {type(seen).__name__}; expected a float"
    assert seen == expected or abs(seen - expected) <= subject.AGREE * (1 + expected) < math.inf, (
        f"a gradient that is off by {off} in one place is said to be {seen} off; expected {expected}: {off} in "
        f"proportion to the gradient's norm, or to {terms:.3g}, the norm of its terms, where that is more"
    )
    assert student.requires_grad is asking and student.grad is None, "the caller's logits took part in the derivative"
