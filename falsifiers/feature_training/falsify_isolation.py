"""Attacks on the isolation of feature matching: who gets a gradient, and on which devices and modes it depends."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.feature_matching.cases import FeatureCase, feature_cases
from falsifiers.support.fake_cuda import fake_cuda
from falsifiers.support.torch_modes import MODES, WITHOUT_GRAPH

FLOATS = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@given(case=feature_cases())
def falsify_teacher_gets_no_gradient(subject: Any, device: str, case: FeatureCase) -> None:
    student, teacher = (
        [x.to(device).clone().requires_grad_() for x in states] for states in (case.student, case.teacher)
    )
    live = case.but(student=student, teacher=teacher, scored=case.scored.to(device).clone())
    live.loss(subject, device).sum.backward()
    assert [x.grad for x in teacher] == [None] * len(teacher), "the teacher's states got a gradient; expected None"
    for name, now, was in (
        ("student", student, case.student),
        ("teacher", teacher, case.teacher),
        ("mask", [live.scored], [case.scored]),
    ):
        assert all(torch.equal(x.cpu(), y) for x, y in zip(now, was, strict=True)), (
            f"the {name} was modified by the call"
        )


def _answers(subject: Any, case: FeatureCase, device: str, with_autograd: bool) -> list[Tensor]:
    loss = case.loss(subject, device)
    return [loss.sum.detach(), loss.count, *(case.gradients(subject, device) if with_autograd else ())]


def _assert_same_bits(when: str, seen: list[Tensor], expected: list[Tensor]) -> None:
    for x, y in zip(seen, expected, strict=False):
        assert x.dtype is y.dtype and torch.equal(x, y), (
            f"a result is {x.tolist()} in {x.dtype} {when}; expected {y.tolist()} in {y.dtype}"
        )


@given(case=feature_cases(), dtype=FLOATS)
def falsify_torch_modes_have_no_influence(subject: Any, device: str, case: FeatureCase, dtype: torch.dtype) -> None:
    case = case.to(dtype)
    outside = _answers(subject, case, device, True)
    for name, mode in MODES.items():
        with mode(device):
            inside = _answers(subject, case, device, name not in WITHOUT_GRAPH)
        _assert_same_bits(f"under {name}", inside, outside)


@given(case=feature_cases(), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def falsify_states_stay_on_their_device(subject: Any, case: FeatureCase, dtype: torch.dtype) -> None:
    case = case.to(dtype)
    expected = _answers(subject, case, "cpu", True)
    with fake_cuda():
        loss = case.loss(subject, "cuda")
        assert loss.sum.is_cuda and loss.count.is_cuda, f"sum and count are on {loss.sum.device}, {loss.count.device}"
        seen = [x.cpu() for x in _answers(subject, case, "cuda", True)]
    _assert_same_bits("on cuda:0", seen, expected)


B, T = 2, 3


def _states(widths: list[int], seed: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(B, T, width, generator=generator).to(device, dtype) for width in widths]


@given(width=st.integers(1, 4), distance=st.sampled_from(["cosine", "l2"]), seed=st.integers(0, 99))
def falsify_a_teacher_may_be_on_another_device(subject: Any, width: int, distance: str, seed: int) -> None:
    matching, scored = subject.FeatureMatching(distance=distance), torch.ones(B, T, dtype=torch.bool)
    expected, _ = matching.differentiate(_states([width], seed), _states([width], seed + 1), scored, 1.0)
    with fake_cuda():
        student = _states([width], seed, device="cuda")
        seen, _ = matching.differentiate(student, _states([width], seed + 1), scored.to("cuda"), 1.0)
        assert float(seen) == float(expected), f"the sum is {float(seen)}; on one device it is {float(expected)}"
