"""Attacks on the loss where positions are ignored, and where logits are infinite."""

import math
from contextlib import nullcontext
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support import oracles
from falsifiers.support.cases import (
    ANYWHERE,
    HALVES,
    IGNORED,
    LOGITS,
    NO_TOKEN,
    POSITIVE_WEIGHTS,
    TERMS_APART,
    KdCase,
    assert_autograd_is_the_oracles,
    assert_is_the_oracles,
    assert_same_gradient,
    kd_cases,
    unit_of,
)
from falsifiers.support.torch_modes import MODES

FILLED = "deterministic algorithms"
"""In this mode PyTorch fills uninitialized memory with NaN."""


@given(
    case=kd_cases(),
    value=st.sampled_from([math.nan, 1e3, math.inf, -math.inf]),
    where=st.sampled_from(["both", "student", "teacher"]),
    element=st.sampled_from([-1, 0, 1, 2, 3, 4]),
    mode=st.sampled_from(["", FILLED]),
)
def falsify_unscored_positions_have_no_influence(
    subject: Any, device: str, case: KdCase, value: float, where: str, element: int, mode: str
) -> None:
    case = _with_padding(case)
    V = case.student.shape[-1]
    at = ~case.scored[..., None] & (torch.arange(V) == element if 0 <= element < V else torch.tensor(True))
    changes = {
        name: torch.where(at, value, getattr(case, name)) for name in ("student", "teacher") if where in (name, "both")
    }
    before = _results(subject, device, case)
    with MODES[mode](device) if mode else nullcontext():
        seen = _results(subject, device, case.but(**changes))
    for key, x in seen.items():
        assert torch.equal(x, before[key]), (
            f"{key} changed from {before[key].tolist()} to {x.tolist()} when {where} logits at unscored positions "
            f"were set to {value}{f', with {mode}' * bool(mode)}"
        )
    for key in ("gradient", "autograd"):
        leaked = seen[key][~case.scored]
        assert not bool(leaked.any()), f"{key} is {leaked.tolist()} at unscored positions; expected exactly 0"


def _with_padding(case: KdCase) -> KdCase:
    """Return the case with one unscored position appended to each element."""
    fields = {"student": 0.0, "teacher": 0.0, "labels": IGNORED}
    parts = {name: (getattr(case, name), torch.full_like(getattr(case, name)[:, :1], x)) for name, x in fields.items()}
    return case.but(**{name: torch.cat(both, 1) for name, both in parts.items()})


def _results(subject: Any, device: str, case: KdCase) -> dict[str, Tensor]:
    loss = case.loss(subject, device)
    gradients = {"gradient": case.gradient(subject, device), "autograd": case.autograd(subject, device)}
    return {"sum": loss.sum, "count": loss.count, **gradients}


@st.composite
def unscored_cases(draw: st.DrawFn, logits: list[float]) -> KdCase:
    """Draw a case with no scored position, possibly empty, whose logits all have one of these values."""
    shape = draw(st.sampled_from([(1, 1, 2), (2, 3, 4), (0, 3, 4), (2, 0, 4), (0, 0, 1)]))
    dtype = draw(st.sampled_from([torch.float64, torch.float32, torch.bfloat16]))
    filled = torch.full(shape, draw(st.sampled_from(logits)), dtype=dtype)
    weights = draw(st.sampled_from([(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]))
    return KdCase(filled, filled.clone(), torch.full(shape[:2], IGNORED), 2.0, *weights)


@given(case=unscored_cases([math.nan, math.inf, -math.inf]))
def falsify_nothing_scored_with_invalid_logits(subject: Any, device: str, case: KdCase) -> None:
    assert_all_zero(subject, device, case)


@given(case=unscored_cases([0.0, 1e3]), mode=st.sampled_from(["", FILLED]))
def falsify_nothing_scored(subject: Any, device: str, case: KdCase, mode: str) -> None:
    with MODES[mode](device) if mode else nullcontext():
        assert_all_zero(subject, device, case)


def assert_all_zero(subject: Any, device: str, case: KdCase) -> None:
    """Assert that sum, count, closed-form gradient and autograd gradient are 0."""
    results = _results(subject, device, case)
    assert (float(results["sum"]), int(results["count"])) == (0.0, 0), f"sum and count: {results}"
    for name in ("gradient", "autograd"):
        gradient = results[name]
        assert gradient.shape == case.student.shape and not bool(gradient.any()), f"{name}: {gradient.tolist()}"


@given(
    case=kd_cases(
        banned=st.sampled_from(["teacher", "student", "same", "each"]),
        logits=LOGITS | st.sampled_from([-1000.0, -300.0]),
    )
)
def falsify_minus_infinity_logits(subject: Any, device: str, case: KdCase) -> None:
    assert_is_the_oracles(subject, case, device)
    assert_autograd_is_the_oracles(subject, case, device)


@given(case=kd_cases(dtype=torch.float32, banned=ANYWHERE, logits=HALVES | st.just(-500.0)))
def falsify_minus_infinity_logits_in_float32(subject: Any, device: str, case: KdCase) -> None:
    unit = oracles.UNIT_ROUNDOFF[torch.float32]
    assert_is_the_oracles(subject, case, device, unit)
    assert_autograd_is_the_oracles(subject, case, device, unit)


@given(case=kd_cases(banned=st.sampled_from(["student", "each"])), keep=st.sampled_from(["ce", "kd", "neither"]))
def falsify_zero_weight_removes_its_term(subject: Any, device: str, case: KdCase, keep: str) -> None:
    case = case.but(ce_weight=float(keep == "ce"), kd_weight=float(keep == "kd"))
    assert_is_the_oracles(subject, case, device)
    assert_autograd_is_the_oracles(subject, case, device)


@given(case=kd_cases(banned=ANYWHERE), padding=st.integers(1, 3))
def falsify_padding_with_minus_infinity(subject: Any, device: str, case: KdCase, padding: int) -> None:
    pad = torch.full((*case.labels.shape, padding), NO_TOKEN, dtype=case.student.dtype)
    padded = case.but(student=torch.cat([case.student, pad], -1), teacher=torch.cat([case.teacher, pad], -1))
    formula, unit = "the same vocabulary without the padding", unit_of(subject)
    text, allowed = f"sum in nats with {padding} tokens of padding", case.allowed_nats(unit) + padded.allowed_nats(unit)
    oracles.assert_close(text, padded.nats(subject, device), case.nats(subject, device), allowed, formula)
    expected = torch.cat([case.gradient(subject, device), torch.zeros_like(pad)], -1)
    allowed = case.allowed_gradient(unit) + padded.allowed_gradient(unit)
    assert_same_gradient("the gradient with padding", padded.gradient(subject, device), expected, allowed, formula)


@given(
    case=kd_cases(smallest_vocabulary=2, logits=HALVES, ce_weights=st.just(0.0), kd_weights=POSITIVE_WEIGHTS),
    padding=st.integers(1, 3),
    logit=HALVES,
    longer=st.sampled_from(["student", "teacher"]),
)
def falsify_padded_vocabulary(subject: Any, case: KdCase, padding: int, logit: float, longer: str) -> None:
    """Only the divergence is tested, because cross-entropy reads one model.

    Vocabularies have at least two tokens, because PyTorch broadcasts a vocabulary of one.
    """
    pad = torch.full((*case.labels.shape, padding), logit, dtype=case.student.dtype)
    padded = case.but(**{longer: torch.cat([getattr(case, longer), pad], -1)})
    cut = padded.but(**{longer: getattr(padded, longer)[..., : case.student.shape[-1]]})
    formula, allowed = "the vocabulary without the padding", 2 * case.allowed_nats(unit_of(subject))
    label = f"sum in nats, {padding} columns of {longer} padding cut off"
    oracles.assert_close(label, cut.nats(subject), case.oracle_nats(), allowed, formula)
    try:
        seen = padded.nats(subject)
    except (ValueError, RuntimeError):
        return  # refused by the loss or by PyTorch
    label = f"sum in nats with {padding} columns of padding in the {longer}"
    oracles.assert_close(label, seen, case.oracle_nats(), allowed, formula)


@given(
    case=kd_cases(logits=st.sampled_from([0.0, 2e38, 1.9e38, -2e38, 1e4, -1e4]), dtype=torch.float32), terms=TERMS_APART
)
def falsify_large_logits_do_not_overflow(subject: Any, device: str, case: KdCase, terms: tuple[float, float]) -> None:
    case = case.but(ce_weight=terms[0], kd_weight=terms[1])
    nats, gradient = case.nats(subject, device), case.gradient(subject, device)
    assert nats >= -case.allowed_nats(2.0**-24), f"sum is {nats} nats for logits up to 2e38; expected >= 0"
    # These logits are equal or far apart, so each softmax is uniform over its largest logits and hardly rounds.
    assert_same_gradient("the gradient", gradient, case.oracle_gradient(), 1e-5 * max(1.0, case.temperature))
