"""Attacks on the gradient: rows that do not see each other, and calls that leave nothing behind."""

import math
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support import divergence_oracles, oracles
from falsifiers.support.cases import unit_of
from falsifiers.support.comparison import (
    ANYWHERE,
    IGNORE_INDICES,
    assert_gradient_is_the_oracles,
    assert_loss_is_the_oracles,
    assert_same_gradient,
)
from falsifiers.support.fake_cuda import fake_cuda
from falsifiers.support.strategies import KdCase, kd_cases
from falsifiers.support.torch_modes import MODES, WITHOUT_GRAPH

FLOATS = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


def _answers(subject: Any, case: KdCase, device: str, with_autograd: bool) -> dict[str, Tensor]:
    loss = case.loss(subject, device)
    answers = {"sum": loss.sum.detach(), "count": loss.count, "gradient": case.gradient(subject, device)}
    return {**answers, "autograd": case.autograd(subject, device)} if with_autograd else answers


@given(case=kd_cases(banned=ANYWHERE), dtype=FLOATS)
def falsify_loss_is_independent_of_torch_modes(subject: Any, device: str, case: KdCase, dtype: torch.dtype) -> None:
    case = case.but(student=case.student.to(dtype), teacher=case.teacher.to(dtype))
    outside = _answers(subject, case, device, True)
    for name, mode in MODES.items():
        with mode(device):
            inside = _answers(subject, case, device, name not in WITHOUT_GRAPH)
        for what, x in inside.items():
            same = x.dtype is outside[what].dtype and torch.equal(x, outside[what])
            assert same, f"{what} is {x.tolist()} in {x.dtype} under {name}; expected {outside[what].tolist()}"


@given(case=kd_cases(banned=ANYWHERE), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def falsify_loss_stays_on_its_device(subject: Any, case: KdCase, dtype: torch.dtype) -> None:
    case = case.but(student=case.student.to(dtype), teacher=case.teacher.to(dtype))
    expected = case.loss(subject), case.gradient(subject), case.autograd(subject)
    with fake_cuda():
        loss, closed_form = case.loss(subject, "cuda"), case.gradient_on_device(subject, "cuda")
        for name, x in (("sum", loss.sum), ("count", loss.count), ("gradient", closed_form)):
            assert x.is_cuda, f"the {name} is on {x.device} for logits on cuda:0"
        seen = loss, closed_form.cpu(), case.autograd(subject, "cuda")
        assert float(seen[0].sum) == float(expected[0].sum), f"sum is {seen[0].sum}; expected {expected[0].sum}"
    for name, x, y in (("gradient", seen[1], expected[1]), ("autograd", seen[2], expected[2])):
        assert torch.equal(x, y), f"{name} is {x.tolist()} on cuda:0; expected {y.tolist()}, as on the CPU"


@given(
    case=kd_cases(dtype=torch.float32), integers=st.sampled_from([torch.int64, torch.int32, torch.int16, torch.int8])
)
def falsify_inputs_are_not_modified(subject: Any, case: KdCase, integers: torch.dtype) -> None:
    case = case.but(labels=case.labels.to(integers))
    strided = case.but(
        student=case.student.transpose(0, 2).contiguous().transpose(0, 2), teacher=case.teacher.mT.contiguous().mT
    )
    before = [x.clone() for x in (strided.student, strided.teacher, strided.labels)]
    asking = strided.but(student=strided.student.requires_grad_(), teacher=strided.teacher.requires_grad_())
    total = asking.loss(subject).sum
    thrice, once = (
        torch.autograd.grad(total, asking.student, torch.full_like(total, x), retain_graph=True)[0] for x in (3.0, 1.0)
    )
    assert torch.allclose(thrice, 3 * once, rtol=1e-5), f"a second backward gives {once}, the first {thrice / 3}"
    torch.set_num_threads(2)
    answers = [(x.loss(subject).sum, x.gradient(subject)) for x in (asking, asking)]
    threads = torch.get_num_threads()
    assert threads == 2, f"the caller had two threads, and has {threads} after the call"
    for name, x, was in zip(
        ("student", "teacher", "labels"), (strided.student, strided.teacher, strided.labels), before, strict=True
    ):
        assert torch.equal(x, was), f"{name} changed from {was.tolist()} to {x.tolist()} in the call"
    answers[0][0].backward()
    assert strided.teacher.grad is None, f"the teacher's .grad is {strided.teacher.grad}; expected None"
    assert not answers[0][1].requires_grad, "the closed-form gradient has a graph; expected none"
    assert torch.equal(answers[0][0], answers[1][0]) and torch.equal(answers[0][1], answers[1][1]), (
        f"equal calls returned {answers[0]} and {answers[1]}"
    )
    detached = strided.but(student=strided.student.detach(), teacher=strided.teacher.detach())
    assert_loss_is_the_oracles(subject, detached, unit=2.0**-24)
    assert_gradient_is_the_oracles(subject, detached, unit=2.0**-24)


@given(
    case=kd_cases(banned=st.sampled_from(["none", "none", "same"]), ignored=IGNORE_INDICES),
    distance=st.sampled_from([1.0, 2.0**-26]),
)
def falsify_gradient_against_autograd(subject: Any, device: str, case: KdCase, distance: float) -> None:
    # Where a student is close to its teacher, a divergence may round below 0; clamping it would lose the gradient.
    apart = torch.where(case.teacher.isinf(), 0.0, case.student - case.teacher)
    case = case.but(student=case.teacher + distance * apart)
    seen, expected = case.gradient(subject, device), case.autograd(subject, device)
    assert_same_gradient(
        "the gradient",
        seen,
        expected,
        2 * case.allowed_gradient(unit_of(subject)),
        "autograd of the subject's own loss",
    )


METRICS = ("kl_at_1", "kl", "teacher_cross_entropy", "teacher_entropy", "agreement")
_BANNED = torch.tensor([[[-math.inf, 0.0]]], dtype=torch.float64)
INFINITE = KdCase(_BANNED, _BANNED, torch.zeros(1, 1, dtype=torch.int64), ce_weight=0.0)
"""A term of weight 0 that is infinite."""
BETA = 0.3


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
    weights, tensors = subject.Weights(**case.settings, divergence=divergence, beta=BETA), case.but(**filled).tensors
    options = {"ignore_index": case.ignore_index, "metrics": metrics, "select": select}
    rows = subject.loss_by_blocks(*tensors(device), weights, **options)
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
