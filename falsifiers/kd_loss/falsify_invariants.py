"""Attacks on the invariants of a distillation loss: its symmetries, its zero and its limit for large temperatures."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.kd_loss.comparison import assert_same_gradient
from falsifiers.support import oracles
from falsifiers.support.strategies import HALVES, POSITIVE_WEIGHTS, KdCase, kd_cases, unit_of


@given(case=kd_cases(logits=HALVES), student_shift=HALVES, teacher_shift=HALVES)
def falsify_shift_invariance(subject: Any, case: KdCase, student_shift: float, teacher_shift: float) -> None:
    """A constant added to a row's logits changes neither sum nor gradient. Adding multiples of 1/2 is exact."""
    shift = torch.arange(1, case.labels.numel() + 1).reshape(*case.labels.shape, 1).double()
    moved = case.but(student=case.student + student_shift * shift, teacher=case.teacher + teacher_shift * shift)
    formula = "the same logits before a constant was added to each row"
    allowed = case.allowed_nats(unit_of(subject)) + moved.allowed_nats(unit_of(subject))
    oracles.assert_close("sum in nats", moved.nats(subject), case.nats(subject), allowed, formula)
    seen, expected = moved.gradient(subject), case.gradient(subject)
    assert_same_gradient(
        "the gradient",
        seen,
        expected,
        case.allowed_gradient(unit_of(subject)) + moved.allowed_gradient(unit_of(subject)),
        formula,
    )


@given(case=kd_cases(), order=st.permutations(range(5)), reverse=st.booleans())
def falsify_permutation_equivariance(subject: Any, case: KdCase, order: list[int], reverse: bool) -> None:
    """Permuting tokens and positions permutes the gradient and leaves the sum unchanged."""
    tokens = torch.tensor([v for v in order if v < case.student.shape[-1]])
    positions = torch.arange(case.labels.shape[1])
    positions = positions.flip(0) if reverse else positions.roll(1)
    labels = torch.where(case.scored, tokens.argsort()[case.labels.clamp_min(0)], case.labels)
    renamed = case.but(
        student=case.student[..., tokens][:, positions],
        teacher=case.teacher[..., tokens][:, positions],
        labels=labels[:, positions],
    )
    formula = "the same tokens and positions in another order"
    allowed = case.allowed_nats(unit_of(subject)) + renamed.allowed_nats(unit_of(subject))
    oracles.assert_close("sum in nats", renamed.nats(subject), case.nats(subject), allowed, formula)
    expected = case.gradient(subject)[..., tokens][:, positions]
    assert_same_gradient(
        "the gradient", renamed.gradient(subject), expected, 2 * case.allowed_gradient(unit_of(subject)), formula
    )


@given(case=kd_cases(ce_weights=st.just(0.0), kd_weights=POSITIVE_WEIGHTS))
def falsify_kl_is_nonnegative_and_zero_on_itself(subject: Any, case: KdCase) -> None:
    """KL >= 0, and loss and gradient are 0 for student = teacher."""
    seen = case.nats(subject)
    assert seen >= -case.allowed_nats(unit_of(subject)), (
        f"KL(teacher ‖ student) is {seen:.9g} nats; expected a number >= 0"
    )
    itself = case.but(student=case.teacher)
    oracles.assert_close(
        "KL(teacher ‖ teacher) in nats",
        itself.nats(subject),
        0.0,
        itself.allowed_nats(unit_of(subject)),
        "zero on itself",
    )
    zero = torch.zeros_like(case.student)
    allowed = itself.allowed_gradient(unit_of(subject))
    assert_same_gradient("the gradient at student = teacher", itself.gradient(subject), zero, allowed, "zero on itself")


@given(
    case=kd_cases(
        logits=st.integers(-6, 6).map(lambda k: k / 2),
        temperatures=st.just(2000.0),
        ce_weights=st.just(0.0),
        kd_weights=st.just(1.0),
    )
)
def falsify_large_temperature_limit(subject: Any, case: KdCase) -> None:
    """τ²·KL tends to ||(s - mean s) - (t - mean t)||² / 2V.

    At τ the limit is off by at most range(t)/τ, from the weights p, and range(s - t)/3τ, from the third cumulant:
    logits in [-3, 3] at τ = 2000 leave (6 + 4)/2000, half of the 1 % allowed.
    """
    centred = (case.student - case.student.mean(-1, keepdim=True)) - (
        case.teacher - case.teacher.mean(-1, keepdim=True)
    )
    limit = float(centred[case.scored].square().sum()) / (2 * case.student.shape[-1])
    seen = case.nats(subject)
    oracles.assert_close(
        "τ²·KL at τ = 2000 in nats",
        seen,
        limit,
        0.01 * limit + case.allowed_nats(unit_of(subject)),
        "‖centred s - t‖² / 2V",
    )
