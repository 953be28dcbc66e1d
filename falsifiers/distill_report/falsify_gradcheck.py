"""Attacks on the comparison of the closed-form gradient with automatic differentiation.

The subject has `relative_difference`, `differences` and `AGREE`, as `distillation.gradcheck` does; where stated, it is
the command line, `reference_trainer.cli`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from click.testing import CliRunner
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.kd_divergences.cases import NAMED, Divergence
from falsifiers.support.comparison import ANYWHERE
from falsifiers.support.strategies import KdCase, kd_cases
from reference_trainer.distillation.losses import kd_logit_gradient

TEMPERATURES = [0.25, 1.0, 2.0, 4.0, 20.0]
FORWARD_KL = ("forward_kl", 0.5)
ONE_ROW = KdCase(torch.zeros(1, 1, 2), torch.zeros(1, 1, 2), torch.zeros(1, 1, dtype=torch.int64), ce_weight=1.0)
"""One scored position, whose gradient is smaller than its terms."""


def _terms(case: KdCase) -> float:
    """Return the norm of the gradient's terms."""
    return (case.ce_weight + case.kd_weight * case.temperature) * math.sqrt(max(1, int(case.scored.sum())))


@example(case=ONE_ROW, named=FORWARD_KL, off=0.5, asking=False, integers=torch.int64)
@given(
    case=kd_cases(dtype=torch.float32, banned=ANYWHERE) | kd_cases(dtype=torch.float64, banned=ANYWHERE),
    named=NAMED,
    off=st.sampled_from([0.0, 1e-6, 0.5, 3.0]),
    asking=st.booleans(),
    integers=st.sampled_from([torch.int64, torch.int32]),
)
def falsify_difference_is_relative(
    subject: Any,
    device: str,
    case: KdCase,
    named: tuple[str, float],
    off: float,
    asking: bool,
    integers: torch.dtype,
) -> None:
    assume(not case.kd_weight or Divergence(case, *named).nats() < math.inf)

    def wrong(*tensors: Tensor, **settings: Any) -> Tensor:
        asked = settings["divergence"], settings["beta"]
        assert asked == named, f"the closed form is asked for divergence and beta {asked}; expected {named}"
        gradient = kd_logit_gradient(*tensors, **settings)
        gradient.view(-1)[:1] += off
        return gradient

    student = case.student.clone().to(device).requires_grad_(asking)
    tensors = (student, case.teacher.to(device), case.labels.to(device, integers))
    given_gradient = {"gradient": wrong} if off else {}
    seen = subject.relative_difference(*tensors, **case.settings, **_divergence(*named), **given_gradient)
    terms = _terms(case)
    hard = case.but(kd_weight=0.0).oracle_gradient()
    scale = max(float((hard + Divergence(case, *named).gradient()).norm()), terms)
    expected = off / scale if scale else math.inf if off else 0.0
    assert type(seen) is float, f"the difference is a {type(seen).__name__}; expected a float"
    assert seen == expected or abs(seen - expected) <= subject.AGREE * (1 + expected) < math.inf, (
        f"a gradient that is off by {off} in one element differs by {seen}; expected {expected}: {off} divided by "
        f"the gradient's norm, or by {terms:.3g}, the norm of its terms, where that is larger"
    )
    assert student.requires_grad is asking and student.grad is None, "the caller's logits took part in the derivative"


def _divergence(name: str, beta: float) -> dict[str, Any]:
    """Return the arguments that are not the defaults."""
    return ({} if name == FORWARD_KL[0] else {"divergence": name}) | ({} if beta == FORWARD_KL[1] else {"beta": beta})


def falsify_gradcheck_accepts_the_trainers_gradient(subject: Any, device: str) -> None:
    ended = CliRunner().invoke(subject.main, ["gradcheck", "--device", device])
    assert ended.exit_code == 0, f"exit code {ended.exit_code}; expected 0: {ended.output}"
    *lines, last = ended.output.splitlines()
    lacks = [tau for tau in TEMPERATURES if not any(line.startswith(f"temperature {tau:5.2f}:") for line in lines)]
    assert not lacks, f"the temperatures {lacks} are not compared: {lines}"
    assert last.startswith(f"agree on {device}"), f"the last line is {last!r}; expected 'agree on {device}'"
