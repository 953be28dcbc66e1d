"""Attacks on the value of a distillation loss: its weights, its zero, and its limit for large temperatures."""

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support import oracles
from falsifiers.support.cases import (
    IGNORE_INDICES,
    LOGITS,
    POSITIVE_WEIGHTS,
    KdCase,
    assert_is_the_oracles,
    assert_loss_is_the_oracles,
    assert_same_gradient,
    kd_cases,
    unit_of,
)


@given(case=kd_cases(ce_weights=st.just(1.0), kd_weights=st.just(0.0)), other=st.lists(LOGITS, min_size=5, max_size=5))
def falsify_teacher_has_no_influence_at_zero_weight(
    subject: Any, device: str, case: KdCase, other: list[float]
) -> None:
    teacher = case.teacher + torch.tensor(other, dtype=torch.float64)[: case.teacher.shape[-1]]
    for changed in (case, case.but(teacher=teacher)):
        assert_is_the_oracles(subject, changed, device)


@given(case=kd_cases(ce_weights=st.just(0.0), kd_weights=st.just(1.0)), turn=st.integers(1, 4))
def falsify_labels_have_no_influence_at_zero_weight(subject: Any, device: str, case: KdCase, turn: int) -> None:
    labels = torch.where(case.scored, (case.labels + turn) % case.student.shape[-1], case.labels)
    changed = case.but(labels=labels)
    seen, before = changed.nats(subject, device), case.nats(subject, device)
    assert seen == before, f"sum changed from {before:.9g} to {seen:.9g} nats with other labels at ce_weight = 0"
    seen_BTV, before_BTV = changed.gradient(subject, device), case.gradient(subject, device)
    assert_same_gradient("the gradient", seen_BTV, before_BTV, 0.0, "the same under other labels")
    assert_is_the_oracles(subject, changed, device)


@given(case=kd_cases(ignored=IGNORE_INDICES))
def falsify_sum_and_count(subject: Any, device: str, case: KdCase) -> None:
    assert_loss_is_the_oracles(subject, case, device)


@given(case=kd_cases(ce_weights=st.just(0.0), kd_weights=POSITIVE_WEIGHTS))
def falsify_kl_is_nonnegative_and_zero_on_itself(subject: Any, device: str, case: KdCase) -> None:
    seen = case.nats(subject, device)
    assert seen >= -case.allowed_nats(unit_of(subject)), f"KL(teacher ‖ student) is {seen:.9g} nats"
    same, unit = case.but(student=case.teacher), unit_of(subject)
    nats, allowed = same.nats(subject, device), same.allowed_nats(unit)
    oracles.assert_close("KL(teacher ‖ teacher) in nats", nats, 0.0, allowed, "zero on itself")
    gradient, zero = same.gradient(subject, device), torch.zeros_like(case.student)
    allowed = same.allowed_gradient(unit)
    assert_same_gradient("the gradient at student = teacher", gradient, zero, allowed, "zero on itself")


ALONE: dict[str, Any] = {"ce_weights": st.just(0.0), "kd_weights": st.just(1.0)}


@given(case=kd_cases(logits=st.integers(-6, 6).map(lambda k: k / 2), temperatures=st.just(2000.0), **ALONE))
def falsify_large_temperature_limit(subject: Any, device: str, case: KdCase) -> None:
    # At τ the limit is off by at most range(t)/τ, from the weights p, and range(s - t)/3τ, from the third cumulant:
    # logits in [-3, 3] at τ = 2000 leave (6 + 4)/2000, half of the 1 % allowed.
    student, teacher = (x - x.mean(-1, keepdim=True) for x in (case.student, case.teacher))
    limit = float((student - teacher)[case.scored].square().sum()) / (2 * case.student.shape[-1])
    seen, allowed = case.nats(subject, device), 0.01 * limit + case.allowed_nats(unit_of(subject))
    oracles.assert_close("τ²·KL at τ = 2000 in nats", seen, limit, allowed, "‖centred s - t‖² / 2V")
