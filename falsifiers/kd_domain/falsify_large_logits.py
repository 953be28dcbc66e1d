"""Attacks on a distillation loss with logits near the largest float32 number."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.comparison import (
    TERMS_APART,
    assert_same_gradient,
)
from falsifiers.support.strategies import KdCase, kd_cases


@given(
    case=kd_cases(logits=st.sampled_from([0.0, 2e38, 1.9e38, -2e38, 1e4, -1e4]), dtype=torch.float32), terms=TERMS_APART
)
def falsify_large_logits_do_not_overflow(subject: Any, device: str, case: KdCase, terms: tuple[float, float]) -> None:
    case = case.but(ce_weight=terms[0], kd_weight=terms[1])
    nats, gradient = case.nats(subject, device), case.gradient(subject, device)
    assert nats >= -case.allowed_nats(2.0**-24), (
        f"sum is {nats} nats for logits up to 2e38; expected a number >= 0, or +inf"
    )
    # These logits are equal or far apart, so each softmax is uniform over its largest logits and hardly rounds.
    assert_same_gradient("the gradient", gradient, case.oracle_gradient(), 1e-5 * max(1.0, case.temperature))
