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

from falsifiers.distill_smoke.cases import changes, invoked, place
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


def falsify_correct_gradient_is_a_go(subject: Any, device: str) -> None:
    with place() as where:
        before = where.listing()
        ended = invoked(subject, where, *where.flags(smoke=2, device=device))
        left = changes(before, where.listing())
    lines = ended.output.splitlines()
    said = [line.split(":")[1].strip() for line in lines if line.startswith("smoke check")]
    assert ended.exit_code == 0, f"exit code {ended.exit_code} after {lines}; expected 0"
    assert said == ["ok", "ok", "ok", "go"], f"the checks are {said}; expected three that are ok, and go: {lines}"
    assert not left, f"a go left {left}; expected no file"


def _asked(subject: Any, wanted: torch.device, shape: tuple[int, int, int], seed: int) -> list[Any]:
    """Return the logits, labels and weights of each comparison, and the temperatures that are yielded."""
    asked: list[Any] = []

    def compare(student: Tensor, teacher: Tensor, labels: Tensor, **weights: float) -> float:
        asked.append((student, teacher, labels, weights))
        return float(len(asked))

    yielded = list(subject.differences(wanted, shape, seed, compare=compare))
    expected = [(temperature, number) for number, temperature in enumerate(TEMPERATURES, 1)]
    assert yielded == expected, f"temperatures and differences are {yielded}; expected {expected}"
    return asked


@given(vocabulary=st.integers(2, 4), seed=st.integers(0, 10**18))
def falsify_gradients_are_compared_at_every_temperature(subject: Any, device: str, vocabulary: int, seed: int) -> None:
    shape, generator = (2, 50, vocabulary), torch.Generator().manual_seed(seed)
    expected = [3 * torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2)]
    asked = _asked(subject, torch.device(device), shape, seed)
    for *logits, labels, _ in asked:
        for name, seen, right in zip(("student", "teacher"), logits, expected, strict=True):
            assert torch.equal(seen.cpu(), right), f"the {name}'s logits of seed {seed} are {seen}; expected {right}"
        assert labels.unique().tolist() == list(range(vocabulary)), f"labels of {vocabulary} tokens are {labels}"
    for wanted in (device, "meta"):
        found = {part.device.type for *parts, _ in _asked(subject, torch.device(wanted), shape, seed) for part in parts}
        assert found == {wanted}, f"logits and labels are on {found}; expected {wanted}"
    seen = [weights for *_, weights in asked]
    weights = [{"temperature": temperature, "ce_weight": 0.3, "kd_weight": 0.7} for temperature in TEMPERATURES]
    assert seen == weights, f"the gradients are compared at {seen}; expected {weights}"


def falsify_gradcheck_accepts_the_trainers_gradient(subject: Any, device: str) -> None:
    ended = CliRunner().invoke(subject.main, ["gradcheck", "--device", device])
    assert ended.exit_code == 0, f"exit code {ended.exit_code}; expected 0: {ended.output}"
    last = ended.output.splitlines()[-1]
    assert last.startswith(f"agree on {device}"), f"the last line is {last!r}; expected 'agree on {device}'"
