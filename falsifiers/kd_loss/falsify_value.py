"""Attacks on the value of a distillation loss over logits."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from falsifiers.support.comparison import IGNORE_INDICES, assert_loss_is_the_oracles
from falsifiers.support.strategies import KdCase, kd_cases


@given(case=kd_cases(ignored=IGNORE_INDICES))
def falsify_sum_and_count(subject: Any, device: str, case: KdCase) -> None:
    assert_loss_is_the_oracles(subject, case, device)
