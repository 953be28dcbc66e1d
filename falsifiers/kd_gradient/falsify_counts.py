"""Attacks on the count of scored positions: exact for any number of positions, in every dtype of the logits.

Shape letters: B batch, T position, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from torch import Tensor

from falsifiers.support import oracles
from falsifiers.support.comparison import GRADIENT, LOSS, TERMS_APART
from falsifiers.support.strategies import HALF_DTYPES, HALVES, IGNORED, KdCase, long_labels, tensors

FLOAT32_INTEGERS = 2**24  # float32 represents every integer up to here, and not the next one


@given(labels=long_labels(), rows=tensors((2, 3), HALVES, torch.float64), dtype=HALF_DTYPES, terms=TERMS_APART)
def falsify_count_is_exact_in_half_precision(
    subject: Any, device: str, labels: Tensor, rows: Tensor, dtype: torch.dtype, terms: tuple[float, float]
) -> None:
    """The count is exact for half-precision logits at more positions than their dtype can count.

    All positions have the same logits, so the sum is that of one position times the count, and the gradient is the
    same at each scored position and exactly 0 elsewhere.
    """
    student, teacher = (row.to(dtype).expand(*labels.shape, 3) for row in rows)
    case = KdCase(student, teacher, labels, 2.0, *terms)
    one = case.but(student=student[:, -1:], teacher=teacher[:, -1:], labels=labels[:, -1:])
    loss, scored, unit = case.loss(subject, device), int(case.scored.sum()), oracles.UNIT_ROUNDOFF[torch.float32]
    assert int(loss.count) == scored, f"count is {int(loss.count)}; expected {scored} for {dtype} logits"
    nats, allowed = scored * one.oracle_nats(), scored * one.allowed_nats(unit)
    oracles.assert_close(f"sum in nats over {scored} positions", float(loss.sum), nats, allowed, LOSS)
    difference = (case.gradient(subject, device) - case.scored[..., None] * one.oracle_gradient()).abs()
    assert bool((difference <= one.allowed_gradient(unit) * case.scored[..., None]).all()), (
        f"the gradient at {scored} scored positions differs by up to {float(difference.max()):.3g} from {GRADIENT}, "
        f"or is not exactly 0 elsewhere; allowed {one.allowed_gradient(unit):.3g}"
    )


def falsify_count_is_exact_beyond_float32(subject: Any) -> None:
    scored = FLOAT32_INTEGERS + 1
    logits = torch.zeros(1, scored + 1, 1, dtype=torch.bfloat16)
    labels = torch.zeros(1, scored + 1, dtype=torch.int64)
    labels[0, 0] = IGNORED
    count = int(KdCase(logits, logits, labels, ce_weight=0.0, kd_weight=0.0).loss(subject).count)
    assert count == scored, f"count is {count}; expected {scored}"
