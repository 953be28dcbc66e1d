"""Attacks on the value and the gradient of each divergence, against oracles in plain Python and hand values."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.kd_divergences.cases import NAMED, SMALL_SHARES, Divergence
from falsifiers.support import oracles
from falsifiers.support.comparison import ANYWHERE, assert_same_gradient
from falsifiers.support.divergence_oracles import DIVERGENCES
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


@given(
    case=kd_cases(banned=ANYWHERE, logits=HALVES | st.sampled_from([-30.0, -500.0]), **ALONE),
    named=SMALL_SHARES,
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
)
def falsify_small_shares(subject: Any, device: str, case: KdCase, named: tuple[str, float], dtype: torch.dtype) -> None:
    of = Divergence(case.but(student=case.student.to(dtype), teacher=case.teacher.to(dtype)), *named)
    share = min(of.beta, 1 - of.beta)
    unit = oracles.UNIT_ROUNDOFF[torch.promote_types(dtype, torch.float32)]
    _assert_is_the_oracles(subject, device, of, 2 * share * (1 - math.log(share)) * unit)


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


@given(case=kd_cases(banned=ANYWHERE, temperatures=st.just(1.0), ce_weights=st.just(0.0), kd_weights=st.just(1.0)))
def falsify_half_mixture_is_symmetric_and_bounded(subject: Any, device: str, case: KdCase) -> None:
    mirrored = case.but(student=case.teacher, teacher=case.student)
    seen, other = (
        float(Divergence(each, "jensen_shannon", 0.5).call(subject.kd_loss, device).sum) for each in (case, mirrored)
    )
    allowed = Divergence(case, "jensen_shannon", 0.5).allowed_nats()
    oracles.assert_close("the divergence", seen, other, 2 * allowed, "student and teacher exchanged")
    most = math.log(2) * int(case.scored.sum())
    assert -allowed <= seen <= most + allowed, f"the divergence is {seen} nats; expected at most ln 2 a row, {most}"


@given(case=kd_cases(banned=st.sampled_from(["none", "same"]), **ALONE), named=NAMED)
def falsify_divergence_from_itself(subject: Any, device: str, case: KdCase, named: tuple[str, float]) -> None:
    of = Divergence(case.but(student=case.teacher), *named)
    oracles.assert_close(
        f"{of.name} at beta {of.beta} of a teacher from itself, nats",
        float(of.call(subject.kd_loss, device).sum),
        0.0,
        of.allowed_nats(),
        "0",
    )
    gradient = of.call(subject.kd_logit_gradient, device).cpu()
    assert_same_gradient("its gradient", gradient, torch.zeros_like(gradient), of.allowed_gradient(), "0")


@given(case=kd_cases(**ALONE), named=NAMED)
def falsify_gradient_against_autograd(subject: Any, device: str, case: KdCase, named: tuple[str, float]) -> None:
    of, leaf = Divergence(case, *named), case.student.clone().requires_grad_()
    log_p, log_q = ((x[case.scored] / case.temperature).log_softmax(-1) for x in (case.teacher, leaf))
    value = DIVERGENCES[of.name].textbook(log_p, log_q, of.beta).sum()
    (case.kd_weight * case.temperature**2 * value).backward()
    gradient = of.call(subject.kd_logit_gradient, device).cpu()
    what = f"the gradient of {of.name} at beta {of.beta}"
    assert_same_gradient(what, gradient, leaf.grad, 2 * of.allowed_gradient(), "autograd of its definition")
