"""Attacks on the value of a distillation loss: its weights, its zero, and its limit for large temperatures."""

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support import oracles
from falsifiers.support.cases import unit_of
from falsifiers.support.comparison import (
    IGNORE_INDICES,
    assert_gradient_is_the_oracles,
    assert_loss_is_the_oracles,
    assert_same_gradient,
)
from falsifiers.support.strategies import LOGITS, POSITIVE_WEIGHTS, KdCase, kd_cases


@given(case=kd_cases(ce_weights=st.just(1.0), kd_weights=st.just(0.0)), other=st.lists(LOGITS, min_size=5, max_size=5))
def falsify_teacher_has_no_influence_at_zero_weight(
    subject: Any, device: str, case: KdCase, other: list[float]
) -> None:
    teacher = case.teacher + torch.tensor(other, dtype=torch.float64)[: case.teacher.shape[-1]]
    for changed in (case, case.but(teacher=teacher)):
        assert_loss_is_the_oracles(subject, changed, device)
        assert_gradient_is_the_oracles(subject, changed, device)


@given(case=kd_cases(ce_weights=st.just(0.0), kd_weights=st.just(1.0)), turn=st.integers(1, 4))
def falsify_labels_have_no_influence_at_zero_weight(subject: Any, device: str, case: KdCase, turn: int) -> None:
    labels = torch.where(case.scored, (case.labels + turn) % case.student.shape[-1], case.labels)
    changed = case.but(labels=labels)
    seen, before = changed.nats(subject, device), case.nats(subject, device)
    assert seen == before, f"sum changed from {before:.9g} to {seen:.9g} nats with other labels at ce_weight = 0"
    assert_same_gradient(
        "the gradient",
        changed.gradient(subject, device),
        case.gradient(subject, device),
        0.0,
        "the same under other labels",
    )
    assert_loss_is_the_oracles(subject, changed, device)
    assert_gradient_is_the_oracles(subject, changed, device)


@given(case=kd_cases(ignored=IGNORE_INDICES))
def falsify_sum_and_count(subject: Any, device: str, case: KdCase) -> None:
    assert_loss_is_the_oracles(subject, case, device)


@given(case=kd_cases(ce_weights=st.just(0.0), kd_weights=POSITIVE_WEIGHTS))
def falsify_kl_is_nonnegative_and_zero_on_itself(subject: Any, device: str, case: KdCase) -> None:
    seen = case.nats(subject, device)
    assert seen >= -case.allowed_nats(unit_of(subject)), f"KL(teacher ‖ student) is {seen:.9g} nats"
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
