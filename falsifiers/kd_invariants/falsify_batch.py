"""Attacks on the result for a batch: the sum over its elements, each with its own gradient."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given

from falsifiers.support import oracles
from falsifiers.support.comparison import IGNORE_INDICES, assert_same_gradient
from falsifiers.support.strategies import KdCase, kd_cases, unit_of


@given(case=kd_cases(ignored=IGNORE_INDICES))
def falsify_batch_is_the_sum_of_its_elements(subject: Any, case: KdCase) -> None:
    """Each element has its own loss and gradient, whatever else is in the batch; a doubled batch doubles the sum."""
    whole, allowed = case.loss(subject), 2 * case.allowed_nats(unit_of(subject))
    parts = {
        (b, t): case.but(
            student=case.student[b, t][None, None],
            teacher=case.teacher[b, t][None, None],
            labels=case.labels[b, t][None, None],
        )
        for b, t in case.scored.nonzero().tolist()
    }
    alone = math.fsum(part.nats(subject) for part in parts.values())
    oracles.assert_close("sum in nats", float(whole.sum), alone, allowed, "its positions, each computed alone")
    gradients = torch.zeros(case.student.shape, dtype=torch.float64)
    for place, part in parts.items():
        gradients[place] = part.gradient(subject)[0, 0].double()
    formula = "its positions, each computed alone"
    assert_same_gradient(
        "the gradient", case.gradient(subject), gradients, 2 * case.allowed_gradient(unit_of(subject)), formula
    )
    twice = case.but(**{name: torch.cat([getattr(case, name)] * 2) for name in ("student", "teacher", "labels")})
    doubled = twice.loss(subject)
    assert int(doubled.count) == 2 * int(whole.count), (
        f"count of the doubled batch is {int(doubled.count)}; expected twice {int(whole.count)}"
    )
    oracles.assert_close(
        "sum in nats of the doubled batch", float(doubled.sum), 2 * float(whole.sum), 2 * allowed, "twice the sum"
    )
    gradients = torch.cat([case.gradient(subject)] * 2)
    assert_same_gradient(
        "the gradient of the doubled batch",
        twice.gradient(subject),
        gradients,
        2 * case.allowed_gradient(unit_of(subject)),
        "the gradient of the batch, repeated",
    )
