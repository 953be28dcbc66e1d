"""Attacks on the labels' dtype: a label means the same in every integer dtype."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from falsifiers.support import oracles
from falsifiers.support.comparison import LOSS, assert_same_gradient
from falsifiers.support.strategies import IGNORED, KdCase, unit_of


@given(
    dtype=st.sampled_from([torch.uint8, torch.int8, torch.int16, torch.int32]),
    labels=st.lists(
        st.sampled_from([0, 127, 128, IGNORED, 256 + IGNORED]) | st.integers(0, 199), min_size=1, max_size=4
    ),
    likely=st.integers(0, 199),
)
def falsify_label_dtypes(subject: Any, dtype: torch.dtype, labels: list[int], likely: int) -> None:
    held = [label for label in labels if torch.iinfo(dtype).min <= label <= torch.iinfo(dtype).max]
    assume(held)
    student = torch.zeros(1, len(held), 200, dtype=torch.float64)
    student[..., likely] = 1.0
    wide = KdCase(student, torch.zeros_like(student), torch.tensor([held]), ce_weight=1.0)
    narrow = wide.but(labels=wide.labels.to(dtype))
    count, expected = int(narrow.loss(subject).count), int(wide.scored.sum())
    assert count == expected, f"count is {count}; expected {expected} for labels {held} in {dtype}"
    what = f"sum in nats, labels {held} in {dtype}"
    oracles.assert_close(what, narrow.nats(subject), wide.oracle_nats(), wide.allowed_nats(unit_of(subject)), LOSS)
    gradient = narrow.gradient(subject)
    assert_same_gradient(f"the gradient at labels {held} in {dtype}", gradient, wide.oracle_gradient(), 1e-12)
