"""Attacks on the mask of a distillation loss: unscored positions and terms of weight 0 have no influence."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support.strategies import IGNORED, KdCase, kd_cases
from falsifiers.support.torch_modes import MODES

FILLED = "deterministic algorithms"
"""In this mode PyTorch fills uninitialized memory with NaN."""


@given(
    case=kd_cases(),
    value=st.sampled_from([1e3, math.nan, math.inf, -math.inf]),
    where=st.sampled_from(["student", "teacher", "both"]),
    element=st.integers(-1, 4),
    mode=st.sampled_from(["", FILLED]),
)
def falsify_unscored_positions_have_no_influence(
    subject: Any, device: str, case: KdCase, value: float, where: str, element: int, mode: str
) -> None:
    case = _with_padding(case)
    at = ~case.scored[..., None] & _elements(case, element)
    changes = {
        name: torch.where(at, value, getattr(case, name)) for name in ("student", "teacher") if where in (name, "both")
    }
    before = _results(subject, device, case)
    with MODES[mode](device) if mode else nullcontext():
        seen = _results(subject, device, case.but(**changes))
    for what, x in seen.items():
        assert torch.equal(x, before[what]), (
            f"{what} changed from {before[what].tolist()} to {x.tolist()} when {where} logits at unscored positions "
            f"were set to {value}{f', with {mode}' * bool(mode)}"
        )
    for what in ("gradient", "autograd"):
        leaked = seen[what][~case.scored]
        assert not bool(leaked.any()), f"{what} is {leaked.tolist()} at unscored positions; expected exactly 0"


def _with_padding(case: KdCase) -> KdCase:
    """Return the case with one unscored position appended to each element."""
    padding, logits = torch.full_like(case.labels[:, :1], IGNORED), torch.zeros_like(case.student[:, :1])
    return case.but(
        student=torch.cat([case.student, logits], 1),
        teacher=torch.cat([case.teacher, logits], 1),
        labels=torch.cat([case.labels, padding], 1),
    )


def _elements(case: KdCase, element: int) -> Tensor:
    """Return a mask of one element of each row, or of the whole row where there is no such element."""
    V = case.student.shape[-1]
    return torch.arange(V) == element if 0 <= element < V else torch.ones(V, dtype=torch.bool)


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
    loss = case.loss(subject, device)
    assert (float(loss.sum), int(loss.count)) == (0.0, 0), (
        f"sum and count are {float(loss.sum)} and {int(loss.count)} with no scored position; expected 0 and 0"
    )
    for what, gradient in (("gradient", case.gradient(subject, device)), ("autograd", case.autograd(subject, device))):
        assert gradient.shape == case.student.shape and not bool(gradient.any()), (
            f"{what} is {gradient.tolist()} with no scored position; expected zeros of shape {list(case.student.shape)}"
        )
