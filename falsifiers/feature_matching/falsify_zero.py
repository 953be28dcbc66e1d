"""Attacks on feature matching where states agree or vanish: exact zeros, finite gradients, no cancellation."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.feature_matching.cases import DISTANCES, FeatureCase, feature_cases
from falsifiers.feature_matching.falsify_value import FORMULA
from falsifiers.support.oracles import UNIT_ROUNDOFF, assert_close
from falsifiers.support.strategies import HALVES

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


@given(
    direction=st.lists(st.integers(1, 9).map(float), min_size=2, max_size=4),
    step=st.integers(4, 20).map(lambda k: 2.0**-k),
    distance=DISTANCES,
)
def falsify_near_agreement_keeps_its_digits(
    subject: Any, device: str, direction: list[float], step: float, distance: str
) -> None:
    teacher = torch.tensor(direction)[None, None]
    student = teacher.clone()
    student[..., 0] *= 1 + step
    case = FeatureCase([student], [teacher], torch.ones(1, 1, dtype=torch.bool), [(0, 0)], distance)
    seen, allowed = float(case.loss(subject, device).sum), case.allowed(UNIT_ROUNDOFF[torch.float32])[0]
    assert seen >= 0, f"{distance} of {student.tolist()} and {teacher.tolist()} is {seen}; expected at least 0"
    if distance == "l2":  # a difference of nearby numbers is exact
        allowed = 2 * (len(direction) + 4) * UNIT_ROUNDOFF[torch.float32] * case.oracle_sum()
    assert_close(f"{distance} of nearly equal vectors", seen, case.oracle_sum(), allowed, FORMULA)
