"""Attacks on the value of a distillation loss, and on its weights: a term of weight 0 has no influence."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.comparison import (
    IGNORE_INDICES,
    assert_gradient_is_the_oracles,
    assert_loss_is_the_oracles,
    assert_same_gradient,
)
from falsifiers.support.strategies import LOGITS, KdCase, kd_cases


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
