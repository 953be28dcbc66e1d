"""Attacks on the zero of a distillation loss and on its limit for large temperatures."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support import oracles
from falsifiers.support.comparison import assert_same_gradient
from falsifiers.support.strategies import POSITIVE_WEIGHTS, KdCase, kd_cases, unit_of


@given(case=kd_cases(ce_weights=st.just(0.0), kd_weights=POSITIVE_WEIGHTS))
def falsify_kl_is_nonnegative_and_zero_on_itself(subject: Any, device: str, case: KdCase) -> None:
    seen = case.nats(subject, device)
    assert seen >= -case.allowed_nats(unit_of(subject)), (
        f"KL(teacher ‖ student) is {seen:.9g} nats; expected a number >= 0"
    )
    itself = case.but(student=case.teacher)
    oracles.assert_close(
        "KL(teacher ‖ teacher) in nats",
        itself.nats(subject, device),
        0.0,
        itself.allowed_nats(unit_of(subject)),
        "zero on itself",
    )
    zero = torch.zeros_like(case.student)
    allowed = itself.allowed_gradient(unit_of(subject))
    assert_same_gradient(
        "the gradient at student = teacher", itself.gradient(subject, device), zero, allowed, "zero on itself"
    )


@given(
    case=kd_cases(
        logits=st.integers(-6, 6).map(lambda k: k / 2),
        temperatures=st.just(2000.0),
        ce_weights=st.just(0.0),
        kd_weights=st.just(1.0),
    )
)
def falsify_large_temperature_limit(subject: Any, device: str, case: KdCase) -> None:
    # At τ the limit is off by at most range(t)/τ, from the weights p, and range(s - t)/3τ, from the third cumulant:
    # logits in [-3, 3] at τ = 2000 leave (6 + 4)/2000, half of the 1 % allowed.
    centred = (case.student - case.student.mean(-1, keepdim=True)) - (
        case.teacher - case.teacher.mean(-1, keepdim=True)
    )
    limit = float(centred[case.scored].square().sum()) / (2 * case.student.shape[-1])
    seen = case.nats(subject, device)
    oracles.assert_close(
        "τ²·KL at τ = 2000 in nats",
        seen,
        limit,
        0.01 * limit + case.allowed_nats(unit_of(subject)),
        "‖centred s - t‖² / 2V",
    )
