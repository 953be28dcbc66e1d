"""Attacks on the closed-form gradient, and on what a loss leaves alone: arguments, device, PyTorch's modes."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support.comparison import (
    ANYWHERE,
    IGNORE_INDICES,
    assert_gradient_is_the_oracles,
    assert_loss_is_the_oracles,
    assert_same_gradient,
)
from falsifiers.support.fake_cuda import fake_cuda
from falsifiers.support.strategies import KdCase, kd_cases, unit_of
from falsifiers.support.torch_modes import MODES, WITHOUT_GRAPH

FLOATS = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


def _answers(subject: Any, case: KdCase, device: str, with_autograd: bool) -> dict[str, Tensor]:
    loss = case.loss(subject, device)
    answers = {"sum": loss.sum.detach(), "count": loss.count, "gradient": case.gradient(subject, device)}
    return {**answers, "autograd": case.autograd(subject, device)} if with_autograd else answers


def _assert_same_bits(when: str, seen: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for what, x in seen.items():
        same = x.dtype is expected[what].dtype and torch.equal(x, expected[what])
        assert same, f"{what} is {x.tolist()} in {x.dtype} {when}; expected {expected[what].tolist()}"


@given(case=kd_cases(banned=ANYWHERE), dtype=FLOATS)
def falsify_loss_is_independent_of_torch_modes(subject: Any, device: str, case: KdCase, dtype: torch.dtype) -> None:
    case = case.but(student=case.student.to(dtype), teacher=case.teacher.to(dtype))
    outside = _answers(subject, case, device, True)
    for name, mode in MODES.items():
        with mode(device):
            inside = _answers(subject, case, device, name not in WITHOUT_GRAPH)
        _assert_same_bits(f"under {name}", inside, outside)


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
    asking = strided.but(student=strided.student.requires_grad_(), teacher=strided.teacher.requires_grad_())
    torch.set_num_threads(2)
    answers = [(x.loss(subject).sum, x.gradient(subject)) for x in (asking, asking)]
    threads = torch.get_num_threads()
    assert threads == 2, f"the caller had two threads, and has {threads} after the call"
    for name, x, was in zip(
        ("student", "teacher", "labels"), (strided.student, strided.teacher, strided.labels), before, strict=True
    ):
        assert torch.equal(x, was), f"{name} changed from {was.tolist()} to {x.tolist()} in the call"
    answers[0][0].backward()
    assert strided.teacher.grad is None, f"the teacher's .grad is {strided.teacher.grad}; expected None"
    assert not answers[0][1].requires_grad, "the closed-form gradient has a graph; expected none"
    assert torch.equal(answers[0][0], answers[1][0]) and torch.equal(answers[0][1], answers[1][1]), (
        f"equal calls returned {answers[0]} and {answers[1]}"
    )
    detached = strided.but(student=strided.student.detach(), teacher=strided.teacher.detach())
    assert_loss_is_the_oracles(subject, detached, unit=2.0**-24)
    assert_gradient_is_the_oracles(subject, detached, unit=2.0**-24)


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
