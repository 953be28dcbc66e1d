"""Attacks on each divergence, against oracles in plain Python and hand values, and on its settings."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.kd_divergences.cases import NAMED, Divergence
from falsifiers.support import oracles
from falsifiers.support.comparison import ANYWHERE, assert_same_gradient
from falsifiers.support.strategies import HALVES, LOGITS, POSITIVE_WEIGHTS, KdCase, kd_cases

ALONE = {"ce_weights": st.just(0.0), "kd_weights": POSITIVE_WEIGHTS}


def _assert_is_the_oracles(subject: Any, device: str, of: Divergence, unit: float) -> None:
    what = f"{of.name} at beta {of.beta}"
    loss, gradient = of.call(subject.kd_loss, device), of.call(subject.kd_logit_gradient, device).cpu()
    oracles.assert_close(f"{what}, nats", float(loss.sum), of.nats(), of.allowed_nats(unit), "its equation")
    assert bool(gradient.isfinite().all()), f"the gradient of {what} is {gradient.tolist()}; expected finite numbers"
    assert_same_gradient(f"the gradient of {what}", gradient, of.gradient(), of.allowed_gradient(unit), "its equation")
    leaf = of.case.student.clone().requires_grad_()
    of_leaf = Divergence(of.case.but(student=leaf), of.name, of.beta)
    of_leaf.call(subject.kd_loss).sum.backward()
    narrow = 0.0 if leaf.dtype.itemsize > 2 else torch.finfo(leaf.dtype).eps * float(of.gradient().abs().max())
    allowed = of.allowed_gradient(unit) + narrow
    assert leaf.grad is not None
    assert_same_gradient(f"autograd of {what}", leaf.grad, of.gradient(), allowed, "its equation")


@given(case=kd_cases(banned=ANYWHERE, logits=LOGITS | st.sampled_from([-1000.0, -300.0]), **ALONE), named=NAMED)
def falsify_divergence_against_oracle(subject: Any, device: str, case: KdCase, named: tuple[str, float]) -> None:
    _assert_is_the_oracles(subject, device, Divergence(case, *named), oracles.UNIT_ROUNDOFF[torch.float64])


@given(
    case=kd_cases(banned=ANYWHERE, logits=HALVES | st.just(-500.0), **ALONE),
    named=NAMED,
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
)
def falsify_narrow_divergence_against_oracle(
    subject: Any, device: str, case: KdCase, named: tuple[str, float], dtype: torch.dtype
) -> None:
    narrow = case.but(student=case.student.to(dtype), teacher=case.teacher.to(dtype))
    _assert_is_the_oracles(subject, device, Divergence(narrow, *named), oracles.UNIT_ROUNDOFF[torch.float32])


@given(
    case=kd_cases(
        dtype=torch.float32, logits=st.sampled_from([50.0, -50.0, 0.0, 49.0]), temperatures=st.just(0.05), **ALONE
    ),
    named=NAMED,
)
def falsify_low_temperature(subject: Any, device: str, case: KdCase, named: tuple[str, float]) -> None:
    _assert_is_the_oracles(subject, device, Divergence(case, *named), oracles.UNIT_ROUNDOFF[torch.float32])


def _row(p: list[float]) -> torch.Tensor:
    return torch.tensor([[p]], dtype=torch.float64).log()


def _mixed(beta: float) -> float:
    """Return the divergence of p = (3/4, 1/4) and q = (1/2, 1/2) at beta, from its definition."""
    m = [beta * 3 / 4 + (1 - beta) / 2, beta / 4 + (1 - beta) / 2]
    of_p = 3 / 4 * math.log(3 / 4 / m[0]) + 1 / 4 * math.log(1 / 4 / m[1])
    of_q = (math.log(1 / 2 / m[0]) + math.log(1 / 2 / m[1])) / 2
    return beta * of_p + (1 - beta) * of_q


FORWARD = 3 / 4 * math.log(3 / 2) + 1 / 4 * math.log(1 / 2)
REVERSE = (math.log(2 / 3) + math.log(2)) / 2
HAND = [
    ("forward_kl", 0.5, FORWARD),
    ("reverse_kl", 0.5, REVERSE),
    ("jensen_shannon", 0, FORWARD),
    ("jensen_shannon", 1, REVERSE),
    *(("jensen_shannon", beta, _mixed(beta)) for beta in (0.1, 0.5, 0.9)),
]


def falsify_hand_values(subject: Any, device: str) -> None:
    case = KdCase(_row([0.5, 0.5]), _row([0.75, 0.25]), torch.zeros(1, 1, dtype=torch.int64))
    for name, beta, expected in HAND:
        seen = float(Divergence(case, name, beta).call(subject.kd_loss, device).sum)
        oracles.assert_close(f"{name} at beta {beta} of (3/4, 1/4) and (1/2, 1/2)", seen, expected, 1e-15, "by hand")
    for zero in (-math.inf, -1e4):
        teacher = torch.tensor([[[0.0, zero]]], dtype=torch.float64)
        apart = case.but(student=teacher.flip(-1), teacher=teacher)
        seen = float(Divergence(apart, "jensen_shannon", 0.5).call(subject.kd_loss, device).sum)
        assert seen == math.log(2), f"the divergence of (1, 0) and (0, 1), logits 0 and {zero}, is {seen!r}; want ln 2"


REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({"divergence": name}, "divergence") for name in ("jsd", None)),
    *(({"beta": beta}, "beta") for beta in (-1e-9, 1 + 1e-9, math.nan, "0.5")),
]


def falsify_settings_are_refused(subject: Any) -> None:
    zeros, labels = torch.zeros(1, 1, 2), torch.zeros(1, 1, dtype=torch.int64)
    usual = {"temperature": 1.0, "ce_weight": 0.0, "kd_weight": 1.0, "divergence": "jensen_shannon"}
    for changed, key in REFUSED:
        for call in (subject.kd_loss, subject.kd_logit_gradient):
            given = partial(call, zeros, zeros, labels, **{**usual, **changed})
            oracles.assert_refused(f"{changed}", given, f"'{key}'", *map(repr, changed.values()))


@given(case=kd_cases(), named=NAMED, value=st.sampled_from([math.nan, math.inf, -math.inf, 1e3]))
def falsify_unscored_positions_and_arguments(
    subject: Any, device: str, case: KdCase, named: tuple[str, float], value: float
) -> None:
    filled = case.but(
        **{name: getattr(case, name).masked_fill(~case.scored[..., None], value) for name in ("student", "teacher")}
    )
    first, second = (Divergence(each, *named) for each in (case, filled))
    kept = [x.clone() for x in filled.tensors(None)]
    sums = [float(each.call(subject.kd_loss, device).sum) for each in (first, second)]
    gradients = [each.call(subject.kd_logit_gradient, device).cpu() for each in (first, second)]
    assert sums[0] == sums[1], f"the sum changed from {sums[0]} to {sums[1]} with {value} at unscored positions"
    assert torch.equal(*gradients), f"the gradient changed from {gradients[0].tolist()} to {gradients[1].tolist()}"
    for before, after in zip(kept, filled.tensors(None), strict=True):
        assert torch.equal(before.nan_to_num(7.0), after.nan_to_num(7.0)), "an argument was changed"
