"""Attacks on the devices inside a distillation loss, with CUDA tensors that need no GPU."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.cases import KdCase
from falsifiers.support.comparison import ANYWHERE
from falsifiers.support.fake_cuda import fake_cuda
from falsifiers.support.strategies import kd_cases


@given(case=kd_cases(banned=ANYWHERE), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def falsify_loss_stays_on_its_device(subject: Any, case: KdCase, dtype: torch.dtype) -> None:
    case = case.but(student=case.student.to(dtype), teacher=case.teacher.to(dtype))
    expected = case.loss(subject), case.gradient(subject), case.autograd(subject)
    with fake_cuda():
        loss, closed_form = case.loss(subject, "cuda"), case.gradient_on_device(subject, "cuda")
        for name, x in (("sum", loss.sum), ("count", loss.count), ("gradient", closed_form)):
            assert x.is_cuda, f"the {name} is on {x.device} for logits on cuda:0"
        seen = loss, closed_form.cpu(), case.autograd(subject, "cuda")
        assert float(seen[0].sum) == float(expected[0].sum), f"sum is {seen[0].sum}; expected {expected[0].sum}"
    for name, x, y in (("gradient", seen[1], expected[1]), ("autograd", seen[2], expected[2])):
        assert torch.equal(x, y), f"{name} is {x.tolist()} on cuda:0; expected {y.tolist()}, as on the CPU"
