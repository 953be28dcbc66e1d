"""Attacks on the closed-form gradient of a distillation loss."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support import oracles
from falsifiers.support.comparison import IGNORE_INDICES, assert_gradient_is_the_oracles, assert_same_gradient
from falsifiers.support.strategies import HALVES, KdCase, kd_cases, unit_of


@given(
    case=kd_cases(banned=st.sampled_from(["none", "none", "same"])),
    distance=st.sampled_from([1.0, 2.0**-26]),
)
def falsify_gradient_against_autograd(subject: Any, device: str, case: KdCase, distance: float) -> None:
    """The closed form equals automatic differentiation of the subject's own loss, in float64.

    Cases with a student close to its teacher are included: there a divergence may round below 0, and clamping it would
    lose the gradient.
    """
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


@given(
    case=kd_cases(logits=HALVES),
    direction=st.lists(st.sampled_from([1, 0, -1, 2]), min_size=30, max_size=30).filter(any),
)
def falsify_gradient_against_central_differences(subject: Any, device: str, case: KdCase, direction: list[int]) -> None:
    along = torch.tensor(direction[: case.student.numel()], dtype=torch.float64).reshape(case.student.shape)
    h = 1e-4
    plus, minus = (case.but(student=case.student + sign * h * along) for sign in (1, -1))
    seen = float((case.gradient(subject, device) * along).sum())
    expected = (plus.nats(subject, device) - minus.nats(subject, device)) / (2 * h)
    # Third derivative along a direction of range 3: a third cumulant, at most 3^3/(6*sqrt(3)) < 3 for each softmax.
    third = 3 * int(case.scored.sum()) * (case.ce_weight + case.kd_weight / case.temperature)
    rounding = (
        plus.allowed_nats(unit_of(subject)) + minus.allowed_nats(unit_of(subject))
    ) / h + along.abs().sum().item() * case.allowed_gradient(unit_of(subject))
    oracles.assert_close(
        "gradient · direction", seen, expected, h * h * third + rounding, "central difference of the subject's loss"
    )


@given(case=kd_cases(ignored=IGNORE_INDICES))
def falsify_gradient_against_oracle(subject: Any, device: str, case: KdCase) -> None:
    assert_gradient_is_the_oracles(subject, case, device)


@given(case=kd_cases(), factor=st.sampled_from([1.0, 0.5, 2.0, -1.0]))
def falsify_repeated_backward(subject: Any, device: str, case: KdCase, factor: float) -> None:
    student, teacher, labels = case.tensors(device)
    leaf = student.detach().clone().requires_grad_()
    loss = subject.kd_loss(leaf, teacher, labels, **case.arguments()).sum
    expected = factor * case.autograd(subject, device)  # these factors are exact
    for time in ("first", "second", "third"):
        (seen,) = torch.autograd.grad(loss, leaf, torch.full_like(loss, factor), retain_graph=True)
        assert torch.equal(seen.cpu(), expected), (
            f"the {time} backward with the incoming gradient {factor} gives {seen.tolist()}; expected "
            f"{expected.tolist()}"
        )
