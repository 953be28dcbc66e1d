"""Attacks on the value of a distillation loss over logits."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from falsifiers.kd_loss.comparison import IGNORE_INDICES, LOSS, assert_loss_is_the_oracles, assert_same_gradient
from falsifiers.support import oracles
from falsifiers.support.strategies import IGNORED, KdCase, kd_cases, unit_of


@given(case=kd_cases(ignored=IGNORE_INDICES))
def falsify_sum_and_count(subject: Any, case: KdCase) -> None:
    """Sum and count equal the oracle's."""
    assert_loss_is_the_oracles(subject, case)


@given(
    dtype=st.sampled_from([torch.uint8, torch.int8, torch.int16, torch.int32]),
    labels=st.lists(
        st.sampled_from([0, 127, 128, IGNORED, 256 + IGNORED]) | st.integers(0, 199), min_size=1, max_size=4
    ),
    likely=st.integers(0, 199),
)
def falsify_label_dtypes(subject: Any, dtype: torch.dtype, labels: list[int], likely: int) -> None:
    """Labels mean the same in every integer dtype: token 156 in uint8 has the bits of -100."""
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
