"""Attacks on the precision of a distillation loss: half-precision logits, float64 sums, float32 overflow."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.support import oracles
from falsifiers.support.comparison import (
    assert_loss_is_the_oracles,
)
from falsifiers.support.strategies import HALVES, IGNORED, KdCase, kd_cases

SCATTERED = KdCase(torch.arange(6.0).view(1, 3, 2), torch.ones(1, 3, 2), torch.tensor([[0, IGNORED, 1]]))
"""Scored positions that are no neighbours."""


@example(case=SCATTERED, dtypes=[torch.float32, torch.float64])
@given(case=kd_cases(dtype=torch.float32, logits=HALVES), dtypes=st.permutations([torch.float64, torch.float32]))
def falsify_wider_dtype_is_used(subject: Any, device: str, case: KdCase, dtypes: list[torch.dtype]) -> None:
    mixed = case.but(student=case.student.to(dtypes[0]), teacher=case.teacher.to(dtypes[1]))
    loss = mixed.loss(subject, device)
    assert (loss.sum.dtype, loss.count.dtype) == (torch.float64, torch.int64), (
        f"sum and count are {loss.sum.dtype} and {loss.count.dtype}; expected float64 and int64"
    )
    assert_loss_is_the_oracles(subject, mixed, device)
    gradient = mixed.gradient(subject, device)
    assert gradient.dtype is dtypes[0], (
        f"the gradient is {gradient.dtype}; expected {dtypes[0]}, as the student's logits"
    )


def falsify_sums_are_float64(subject: Any, device: str) -> None:
    """Sums of float32 terms, over tokens and over positions, are float64: not all of them are float32 numbers.

    Nearly every float64 sum of many float32 terms has more bits than a float32 number; a sum accumulated in float32
    never does. A weight rounded to float32 is detected by comparing with the same terms, weighted in float64.
    """
    case = _case_in_float32()
    alone = [case.but(labels=case.labels.where(torch.arange(32) == t, IGNORED)) for t in range(32)]
    first = [case.but(labels=case.labels.where(torch.arange(32) <= t, IGNORED)) for t in range(2, 32)]
    _assert_beyond_float32("tokens", [x.nats(subject, device) for x in alone])
    hard = [x.but(ce_weight=1.0, kd_weight=0.0) for x in first]
    _assert_beyond_float32("positions", [x.nats(subject, device) for x in hard])
    for ce_weight, kd_weight in ((0.3, 0.0), (0.0, 0.3), (0.3, 0.7)):
        _assert_linear(subject, device, case.but(ce_weight=ce_weight, kd_weight=kd_weight))


def _case_in_float32() -> KdCase:
    generator = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(1, 32, 64, generator=generator) for _ in range(2))
    return KdCase(student, teacher, torch.randint(64, (1, 32), generator=generator))


def _assert_beyond_float32(axis: str, sums: list[float]) -> None:
    narrow = [nats for nats in sums if float(torch.tensor(nats, dtype=torch.float32)) == nats]
    assert len(narrow) < len(sums), (
        f"all of {len(sums)} sums over {axis} of float32 terms are float32 numbers, such as {sums[0]!r}; expected "
        f"float64 sums"
    )


def _assert_linear(subject: Any, device: str, case: KdCase) -> None:
    """Assert that the sum is linear in the weights; the relative error of a rounded weight is equal in all terms."""
    hard = case.but(ce_weight=1.0, kd_weight=0.0).nats(subject, device)
    soft = case.but(ce_weight=0.0, kd_weight=1.0).nats(subject, device)
    expected = case.ce_weight * hard + case.kd_weight * soft
    # Each position's two terms are rounded when weighted and when added, at most 4 times; the sum rounds once for each.
    allowed = 2 * (case.labels.numel() + 4) * oracles.UNIT_ROUNDOFF[torch.float64] * expected
    what = f"sum in nats of float32 terms at ce_weight {case.ce_weight:g} and kd_weight {case.kd_weight:g}"
    formula = f"{case.ce_weight:g}·{hard:.9g} + {case.kd_weight:g}·{soft:.9g}, the weights as float64 numbers"
    oracles.assert_close(what, case.nats(subject, device), expected, allowed, formula)
