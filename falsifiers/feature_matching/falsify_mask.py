"""Attacks on feature matching where positions are unscored, and where states agree or vanish."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.feature_matching.cases import DISTANCES, FeatureCase, feature_cases
from falsifiers.feature_matching.falsify_value import FORMULA
from falsifiers.support.oracles import UNIT_ROUNDOFF, assert_close
from falsifiers.support.strategies import HALVES


@given(
    case=feature_cases(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    value=st.sampled_from([0.0, 1e6, math.nan, math.inf]),
    whose=st.sampled_from(["student", "teacher", "both"]),
)
def falsify_unscored_positions_have_no_influence(
    subject: Any, device: str, case: FeatureCase, dtype: torch.dtype, value: float, whose: str
) -> None:
    case = _with_padding(case.to(dtype))
    names = ("student", "teacher") if whose == "both" else (whose,)
    padding = ~case.scored[..., None]
    changed = case.but(**{name: [x.masked_fill(padding, value) for x in getattr(case, name)] for name in names})
    before, after = case.loss(subject, device), changed.loss(subject, device)
    for what in ("sum", "count"):
        was, seen = getattr(before, what), getattr(after, what)
        assert torch.equal(was, seen), (
            f"{what} changed from {was} to {seen} when unscored states of {whose} were set to {value}"
        )
    for was, seen in zip(case.gradients(subject, device), changed.gradients(subject, device), strict=True):
        assert torch.equal(was, seen), f"gradient changed from {was.tolist()} to {seen.tolist()} for {value} in {whose}"
        leaked = seen[~case.scored]
        assert not bool(leaked.any()), f"the gradient of unscored states is {leaked.tolist()}; expected exactly 0"


def _with_padding(case: FeatureCase) -> FeatureCase:
    """Return the case with one unscored position appended to each element of the batch."""
    student, teacher = ([torch.cat([x, x[:, :1]], 1) for x in states] for states in (case.student, case.teacher))
    return case.but(student=student, teacher=teacher, scored=torch.nn.functional.pad(case.scored, (0, 1)))


@given(
    shape=st.sampled_from([(1, 1, 2), (2, 3, 4), (0, 3, 4), (2, 0, 4), (0, 0, 1)]),
    value=st.sampled_from([0.0, 1e3, math.nan, math.inf]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    distance=DISTANCES,
)
def falsify_nothing_scored(
    subject: Any, device: str, shape: tuple[int, ...], value: float, dtype: torch.dtype, distance: str
) -> None:
    states = [torch.full(shape, value, dtype=dtype)]
    case = FeatureCase(states, states, torch.zeros(shape[:2], dtype=torch.bool), [(0, 0)], distance)
    loss = case.loss(subject, device)
    assert (float(loss.sum), int(loss.count)) == (0.0, 0), f"sum and count are {loss.sum} and {loss.count}; expected 0"
    (gradient,) = case.gradients(subject, device)
    assert not bool(gradient.any()), f"the gradient is {gradient.tolist()} with no scored position; expected zeros"


DTYPES = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16])
LARGEST_GRADIENT = 2e4


@given(case=feature_cases(states=HALVES | st.just(0.0)), dtype=DTYPES)
def falsify_equal_states_are_at_distance_zero(subject: Any, device: str, case: FeatureCase, dtype: torch.dtype) -> None:
    case = case.to(dtype)
    case = case.but(teacher=case.student, layers=[(k, k) for k in range(len(case.student))])
    seen = float(case.loss(subject, device).sum)
    assert seen == 0.0, f"sum of {case.distance} is {seen!r} for equal states; expected exactly 0"
    for gradient in case.gradients(subject, device):
        assert not bool(gradient.any()), f"the gradient is {gradient.tolist()} for equal states; expected exactly 0"


@given(
    case=feature_cases(states=HALVES),
    dtype=DTYPES,
    scale=st.sampled_from([0.0, 1e-7, 1e-5, 1e-4, 1e-3]),
    whose=st.sampled_from(["student", "teacher", "both"]),
)
def falsify_vanishing_states_have_finite_gradients(
    subject: Any, device: str, case: FeatureCase, dtype: torch.dtype, scale: float, whose: str
) -> None:
    names = ("student", "teacher") if whose == "both" else (whose,)
    case = case.but(**{name: [x * scale for x in getattr(case, name)] for name in names}).to(dtype)
    allowed, _ = case.allowed(UNIT_ROUNDOFF[torch.float64 if dtype is torch.float64 else torch.float32])
    seen = float(case.loss(subject, device).sum)
    assert_close(f"sum of {case.distance} with {whose} times {scale:g}", seen, case.oracle_sum(), allowed, FORMULA)
    for gradient in case.gradients(subject, device):
        largest = gradient.double().abs().max().item()
        # A layer may be in every pair, at most B * T = 6 positions share no state; rounding adds less than 1 %.
        assert largest <= 1.01 * LARGEST_GRADIENT, (
            f"the gradient of {case.distance} is {gradient.tolist()} with {whose} times {scale:g}; expected at most "
            f"{LARGEST_GRADIENT:g}"
        )
