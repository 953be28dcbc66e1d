"""Attacks on the result for a batch: the sum over its elements, each with its own gradient."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given
from torch import Tensor

from falsifiers.support import oracles
from falsifiers.support.comparison import IGNORE_INDICES, assert_same_gradient
from falsifiers.support.strategies import KdCase, kd_cases, unit_of

FORMULA = "its positions, each computed alone"


@given(case=kd_cases(ignored=IGNORE_INDICES))
def falsify_batch_is_the_sum_of_its_elements(subject: Any, device: str, case: KdCase) -> None:
    parts = {(b, t): _alone(case, b, t) for b, t in case.scored.nonzero().tolist()}
    sum_alone = math.fsum(part.nats(subject, device) for part in parts.values())
    gradients = torch.zeros(case.student.shape, dtype=torch.float64)
    for place, part in parts.items():
        gradients[place] = part.gradient(subject, device)[0, 0].double()
    _assert_result(subject, device, case, int(case.scored.sum()), sum_alone, gradients, FORMULA)
    twice = case.but(**{name: torch.cat([getattr(case, name)] * 2) for name in ("student", "teacher", "labels")})
    doubled = torch.cat([gradients] * 2)
    _assert_result(subject, device, twice, 2 * int(case.scored.sum()), 2 * sum_alone, doubled, "twice the batch")


def _alone(case: KdCase, b: int, t: int) -> KdCase:
    """Return the case of one position."""
    return case.but(
        student=case.student[b, t][None, None],
        teacher=case.teacher[b, t][None, None],
        labels=case.labels[b, t][None, None],
    )


def _assert_result(
    subject: Any, device: str, case: KdCase, count: int, nats: float, gradient: Tensor, formula: str
) -> None:
    loss, unit = case.loss(subject, device), unit_of(subject)
    assert int(loss.count) == count, f"count is {int(loss.count)}; expected {count} ({formula})"
    oracles.assert_close("sum in nats", float(loss.sum), nats, 2 * case.allowed_nats(unit), formula)
    assert_same_gradient(
        "the gradient", case.gradient(subject, device), gradient, 2 * case.allowed_gradient(unit), formula
    )
