"""Attacks on the value of feature matching, and where positions are unscored or states vanish."""

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.feature_matching.cases import DISTANCES, FeatureCase, feature_cases
from falsifiers.support.oracles import UNIT_ROUNDOFF, assert_close
from falsifiers.support.strategies import HALF_DTYPES, HALVES


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
        assert torch.equal(was, seen), f"with {value} in {whose}'s padding, {what} went from {was} to {seen}"
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
        assert largest <= 1.01 * LARGEST_GRADIENT, f"{case.distance}, {whose} times {scale:g}: {gradient.tolist()}"


FORMULA = "sum over scored positions of the mean over pairs of layers"


def assert_is_the_oracles(subject: Any, case: FeatureCase, device: str, unit: float) -> None:
    """Assert that sum, count and gradients equal the oracle's."""
    loss, (of_sum, of_gradient) = case.loss(subject, device), case.allowed(unit)
    assert int(loss.count) == int(case.scored.sum()), f"count is {int(loss.count)}; expected {int(case.scored.sum())}"
    assert_close(f"sum of {case.distance}", float(loss.sum), case.oracle_sum(), of_sum, FORMULA)
    pairs = zip(case.gradients(subject, device), case.oracle_gradients(), strict=True)
    for layer, (seen, expected) in enumerate(pairs):
        assert_gradient(f"gradient of layer {layer} by {case.distance}", seen, expected, of_gradient)


def assert_gradient(what: str, seen: Tensor, expected: Tensor, allowed: float) -> None:
    """Assert that a gradient has the shape of the oracle's and differs by at most `allowed` and one rounding."""
    assert seen.shape == expected.shape, f"{what} has shape {list(seen.shape)}; expected {list(expected.shape)}"
    difference = (seen.double() - expected).abs() - expected.abs() * torch.finfo(seen.dtype).eps
    assert bool((difference <= allowed).all()), f"{what} is {seen.tolist()}, not {expected.tolist()}"


@given(case=feature_cases())
def falsify_sum_count_and_gradient(subject: Any, device: str, case: FeatureCase) -> None:
    assert_is_the_oracles(subject, case, device, UNIT_ROUNDOFF[torch.float64])


@given(
    case=feature_cases(states=HALVES),
    dtype=HALF_DTYPES,
    wide=st.sampled_from([None, "student", "teacher"]),
)
def falsify_half_precision_is_computed_in_float32(
    subject: Any, device: str, case: FeatureCase, dtype: torch.dtype, wide: str | None
) -> None:
    """Beside a float64 model, in float64.

    Each layer of the student is in one pair only, because autograd adds gradients in the dtype of the layer.
    """
    pairs = {i % len(case.student): (i, j) for i, j in case.layers}
    mixed = case.to(dtype).but(layers=list(pairs.values()), **({wide: getattr(case, wide)} if wide else {}))
    assert_is_the_oracles(subject, mixed, device, UNIT_ROUNDOFF[torch.float64 if wide else torch.float32])
    kinds = {each.dtype for each in mixed.gradients(subject, device)}
    assert kinds == {mixed.student[0].dtype}, f"the gradients are {kinds}; expected {mixed.student[0].dtype}"
    loss = mixed.loss(subject, device)
    kept = loss.sum.dtype, loss.count.dtype
    assert kept == (torch.float64, torch.int64), f"sum and count are {kept}; expected float64 and int64"
