"""Attacks on the numbers of each row of a walk.

The subject has `walk`, `weighted_sum` and `Weights`, as `reference_trainer.distillation.rows` does.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support import divergence_oracles, oracles
from falsifiers.support.comparison import ANYWHERE
from falsifiers.support.strategies import KdCase, kd_cases

METRICS = ("kl_at_1", "kl", "teacher_cross_entropy", "teacher_entropy", "agreement")
_BANNED = torch.tensor([[[-math.inf, 0.0]]], dtype=torch.float64)
INFINITE = KdCase(_BANNED, _BANNED, torch.zeros(1, 1, dtype=torch.int64), ce_weight=0.0)
"""A term of weight 0 that is infinite."""
BETA = 0.3


def _walk(subject: Any, case: KdCase, device: str = "cpu", divergence: str = "forward_kl", **options: Any) -> Any:
    weights = subject.Weights(**case.settings, divergence=divergence, beta=BETA)
    rows = subject.walk(*case.tensors(device), weights, ignore_index=case.ignore_index, **options)
    return rows, weights


def _expected(case: KdCase, student: list[float], teacher: list[float], label: int, name: str) -> dict[str, float]:
    log_p, tau = oracles.log_softmax(teacher), case.temperature
    first = [max(range(len(row)), key=row.__getitem__) for row in (student, teacher)]
    return {
        "cross_entropy": oracles.cross_entropy(student, label),
        "divergence": divergence_oracles.row_divergence(student, teacher, tau, name, BETA),
        "kl_at_1": oracles.forward_kl(student, teacher, 1.0),
        "kl": oracles.forward_kl(student, teacher, tau),
        "teacher_cross_entropy": oracles.cross_entropy(teacher, label),
        "teacher_entropy": -math.fsum(math.exp(x) * x for x in log_p if x > -math.inf),
        "agreement": float(first[0] == first[1]),
    }


@example(case=INFINITE, divergence="forward_kl", metrics=True, select=True)
@given(
    case=kd_cases(banned=ANYWHERE),
    divergence=st.sampled_from(sorted(divergence_oracles.DIVERGENCES)),
    metrics=st.booleans(),
    select=st.booleans(),
)
def falsify_numbers_of_rows(
    subject: Any, device: str, case: KdCase, divergence: str, metrics: bool, select: bool
) -> None:
    filled = {
        name: getattr(case, name).masked_fill(~case.scored[..., None], math.nan) for name in ("student", "teacher")
    }
    rows, weights = _walk(subject, case.but(**filled), device, divergence, metrics=metrics, select=select)
    expected = torch.zeros(7, *case.labels.shape, dtype=torch.float64)
    allowed = 0.0
    for (b, t), student, teacher, label in case.rows():
        of_row = _expected(case, student, teacher, label, divergence)
        expected[:, b, t] = torch.tensor(list(of_row.values()), dtype=torch.float64)
        unit = oracles.UNIT_ROUNDOFF[torch.float64]
        for tau in (1.0, case.temperature):
            allowed = max(allowed, divergence_oracles.allowed_divergence(student, teacher, tau, unit))
    for term, weight in enumerate((case.ce_weight, case.kd_weight)):
        if not (weight or metrics):
            expected[term] = 0.0
    _assert_numbers(rows, expected.flatten(1), 2 + 5 * metrics, allowed)
    absent = [name for name in METRICS if getattr(rows, f"{name}_P").numel()]
    assert metrics or not absent, f"metrics that were not asked for have numbers: {absent}"
    assert rows.gradient_BTV.numel() == 0, f"a gradient of {list(rows.gradient_BTV.shape)} without a scale"
    _assert_weighted(subject, rows, weights, case)


def _assert_numbers(rows: Any, expected: Tensor, count: int, allowed: float) -> None:
    for name, wanted in list(zip(("cross_entropy", "divergence", *METRICS), expected, strict=True))[:count]:
        seen = getattr(rows, f"{name}_P")
        assert (seen.dtype, seen.shape) == (torch.float64, wanted.shape), f"{name} is {seen.dtype} {list(seen.shape)}"
        for p, (value, target) in enumerate(zip(seen.cpu().tolist(), wanted.tolist(), strict=True)):
            oracles.assert_close(f"{name} of row {p}", value, target, allowed, "the oracle's")


def _assert_weighted(subject: Any, rows: Any, weights: Any, case: KdCase) -> None:
    """Assert that the weighted sum has no term of weight 0, even if it is infinite."""
    terms = (case.ce_weight, rows.cross_entropy_P), (case.kd_weight * case.temperature**2, rows.divergence_P)
    expected = math.fsum(weight * nats for weight, nats_P in terms if weight for nats in nats_P.tolist())
    seen = float(subject.weighted_sum(rows, weights))
    oracles.assert_close("the weighted sum", seen, expected, 1e-12 * abs(expected), "terms of positive weight")
