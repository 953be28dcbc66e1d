"""Attacks on the closed-form gradient of half-precision logits."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support import oracles
from falsifiers.support.comparison import assert_gradient_is_the_oracles
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
    gradient = case.gradient(subject, device)
    assert gradient.dtype is torch.float32, (
        f"the gradient of {case.student.dtype} logits is {gradient.dtype}; expected torch.float32"
    )
    assert_gradient_is_the_oracles(subject, case, device, oracles.UNIT_ROUNDOFF[torch.float32])


@given(case=narrow_cases(), exponent=st.integers(0, 15))
def falsify_scaled_loss(subject: Any, device: str, case: KdCase, exponent: int) -> None:
    """The gradient of 2^exponent times the loss is rounded to the dtype of the logits once, after the scaling.

    Probabilities of tokens that are not the label are compared: float32 computes them with a relative error, however
    small they are.
    """
    case, scale = case.but(ce_weight=1.0, kd_weight=0.0), 2.0**exponent
    student, teacher, labels = case.tensors(device)
    leaf = student.detach().clone().requires_grad_()
    loss = subject.kd_loss(leaf, teacher, labels, **case.arguments()).sum
    (seen,) = torch.autograd.grad(loss * scale, leaf)
    assert seen.dtype is student.dtype, f"the gradient of {student.dtype} logits is {seen.dtype}"
    is_label = torch.arange(case.student.shape[-1]) == case.labels.unsqueeze(-1)
    expected = (scale * case.student.double().softmax(-1)).masked_fill(~case.scored.unsqueeze(-1), 0.0)
    limits = torch.finfo(student.dtype)
    allowed = expected * (1e-5 + limits.eps / 2) + limits.smallest_normal * limits.eps
    wrong = ((seen.cpu().double() - expected).abs() > allowed) & ~is_label
    assert not bool(wrong.any()), (
        f"the gradient of {scale:g} times the cross-entropy of {student.dtype} logits has the elements "
        f"{seen.cpu()[wrong].tolist()}; expected {expected[wrong].tolist()} ({scale:g} · softmax(s), rounded once)"
    )
