"""Assertions that compare a distillation loss and its gradient with the float64 oracles."""

import math
from typing import Any

from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support import oracles
from falsifiers.support.cases import unit_of
from falsifiers.support.strategies import IGNORED, KdCase

LOSS = "sum over scored rows of ce_weight·CE + kd_weight·τ²·KL(teacher ‖ student)"
GRADIENT = "ce_weight·(softmax(s) - onehot) + kd_weight·τ·(softmax(s/τ) - softmax(t/τ))"
ANYWHERE = st.sampled_from(["none", "teacher", "student", "same", "each"])
IGNORE_INDICES = st.sampled_from([IGNORED, -1, 0, 1, 7])
TERMS_APART = st.sampled_from([(1.0, 0.0), (0.0, 1.0), (0.3, 0.7)])


def assert_loss_is_the_oracles(subject: Any, case: KdCase, device: str | None = None, unit: float = 0.0) -> None:
    """Assert that count and sum equal the oracle's; `unit` is the unit roundoff, by default the subject's."""
    loss = case.loss(subject, device)
    assert int(loss.count) == int(case.scored.sum()), f"count is {int(loss.count)}; expected {int(case.scored.sum())}"
    assert not math.isnan(float(loss.sum)), f"sum is NaN; expected {case.oracle_nats():.9g} nats ({LOSS})"
    oracles.assert_close(
        "sum in nats", float(loss.sum), case.oracle_nats(), case.allowed_nats(unit or unit_of(subject)), LOSS
    )


def assert_gradient_is_the_oracles(subject: Any, case: KdCase, device: str | None = None, unit: float = 0.0) -> None:
    """Assert that the gradient equals the oracle's; `unit` is the unit roundoff, by default the subject's."""
    assert_same_gradient(
        "the gradient",
        case.gradient(subject, device),
        case.oracle_gradient(),
        case.allowed_gradient(unit or unit_of(subject)),
    )


def assert_same_gradient(what: str, seen: Tensor, expected: Tensor, allowed: float, formula: str = GRADIENT) -> None:
    """Assert that no element differs by more than `allowed`; `formula` states in the message what is expected."""
    difference = (seen.double() - expected.double()).abs()
    assert bool((difference <= allowed).all()), (
        f"{what} is {seen.tolist()}; expected {expected.tolist()} ({formula}); difference "
        f"{difference.max().item():.3g}, allowed {allowed:.3g}"
    )
