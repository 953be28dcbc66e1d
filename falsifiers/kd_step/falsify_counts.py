"""Attacks on the token counts of a distillation step: in its result, its metrics and the divisor of its gradient."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from torch import Tensor

from falsifiers.support import oracles
from falsifiers.support.comparison import TERMS_APART
from falsifiers.support.steps import SHIFTED, recorded_step
from falsifiers.support.strategies import HALF_DTYPES, HALVES, StepCase, long_labels, tensors


@given(labels=long_labels(), rows=tensors((2, 3), HALVES, torch.float64), dtype=HALF_DTYPES, terms=TERMS_APART)
def falsify_counts_are_exact_in_half_precision(
    subject: Any, device: str, labels: Tensor, rows: Tensor, dtype: torch.dtype, terms: tuple[float, float]
) -> None:
    """Every count is exact for half-precision logits at more tokens than their dtype can count.

    All tokens have the same logits, so the loss is that of one token, and the gradient is that of one token divided
    by the exact count.
    """
    labels = torch.cat([labels[:, :1], labels], 1)  # the first label is the target of no logits
    student, teacher = rows[:, None].to(dtype)
    case = StepCase(torch.zeros_like(labels), labels, student, teacher, 2.0, *terms)
    shifted = case.shifted()
    one = shifted.but(student=student[None], teacher=teacher[None], labels=labels[:, -1:])
    result, gradient = recorded_step(subject, case, device)
    scored, unit = int(shifted.scored.sum()), oracles.UNIT_ROUNDOFF[torch.float32]
    counts = {"the step": result.count, **{name: metric.count for name, metric in result.metrics.items()}}
    assert len(counts) > 1 and set(counts.values()) == {scored}, (
        f"counts are {counts}; expected {scored} each for {dtype} logits"
    )
    nats, allowed = one.oracle_nats(), one.allowed_nats(unit)
    oracles.assert_close("loss in nats per token", result.loss, nats, allowed, SHIFTED)
    oracles.assert_close("sum in nats", result.sum, scored * nats, scored * allowed, SHIFTED)
    expected = one.oracle_gradient() / scored
    difference, allowed = (gradient[:, -2] - expected).abs(), 2 * one.allowed_gradient(unit) / scored
    assert bool((difference <= allowed).all()), (
        f"the gradient of a scored token is {gradient[0, -2].tolist()}; expected {expected[0, 0].tolist()} ({SHIFTED})"
    )
