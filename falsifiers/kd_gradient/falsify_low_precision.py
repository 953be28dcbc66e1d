"""Attacks on the closed-form gradient of half-precision logits."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support import oracles
from falsifiers.support.comparison import (
    assert_gradient_is_the_oracles,
)
from falsifiers.support.strategies import KdCase, kd_cases


@st.composite
def narrow_cases(draw: st.DrawFn) -> KdCase:
    """Draw cases with float32, bfloat16 and float16 logits, the student sometimes close to its teacher."""
    case = draw(kd_cases(logits=st.floats(-30, 30, width=32), dtype=torch.float32))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
    student = case.teacher + draw(st.sampled_from([1.0, 2.0**-6, 2.0**-12])) * (case.student - case.teacher)
    return case.but(student=student.to(dtype), teacher=case.teacher.to(dtype))


@given(case=narrow_cases())
def falsify_low_precision_gradient(subject: Any, device: str, case: KdCase) -> None:
    """The closed-form gradient of half-precision and float32 logits is float32 and equals the oracle's."""
    gradient = case.gradient(subject, device)
    assert gradient.dtype is torch.float32, (
        f"the gradient of {case.student.dtype} logits is {gradient.dtype}; expected torch.float32"
    )
    assert_gradient_is_the_oracles(subject, case, device, oracles.UNIT_ROUNDOFF[torch.float32])
