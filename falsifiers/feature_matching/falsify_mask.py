"""Attacks on the value of feature matching, and where positions are unscored or states vanish."""

import itertools
import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.feature_matching.cases import DISTANCES, FeatureCase, feature_cases
from falsifiers.support.assertions import assert_equal
from falsifiers.support.cases import HALF_DTYPES, HALVES
from falsifiers.support.oracles import UNIT_ROUNDOFF, assert_close

MODELS = st.sampled_from(["student", "teacher", "both"])


@given(
    case=feature_cases(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    value=st.sampled_from([0.0, 1e6, math.nan, math.inf]),
    whose=MODELS,
)
def falsify_unscored_positions_have_no_influence(
    subject: Any, device: str, case: FeatureCase, dtype: torch.dtype, value: float, whose: str
) -> None:
    case = _with_padding(case.to(dtype))
    padding = ~case.scored[..., None]
    changed = case.mapped(whose, lambda x: x.masked_fill(padding, value))
    before, after = ([(loss := c.loss(subject, device)).sum, loss.count] for c in (case, changed))
    gradients = changed.gradients(subject, device)
    pairs = zip(before + case.gradients(subject, device), after + gradients, strict=True)
    for name, (old, seen) in zip(
        itertools.chain(["sum", "count"], itertools.repeat("a gradient")), pairs, strict=False
    ):
        assert torch.equal(old, seen), f"with {value} in {whose}'s padding, {name} went from {old} to {seen}"
    for gradient in gradients:
        leaked = gradient[~case.scored]
        assert not bool(leaked.any()), f"the gradient of unscored states is {leaked.tolist()}; expected exactly 0"


def _with_padding(case: FeatureCase) -> FeatureCase:
    """Return the case with one unscored position appended to each element of the batch."""
    longer = case.mapped("both", lambda x: torch.cat([x, x[:, :1]], 1))
    return longer.but(scored=torch.nn.functional.pad(case.scored, (0, 1)))


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
    assert_equal("sum and count", (float(loss.sum), int(loss.count)), (0.0, 0))
    (gradient,) = case.gradients(subject, device)
    assert not bool(gradient.any()), f"the gradient is {gradient.tolist()} with no scored position; expected zeros"


DTYPES = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16])
LARGEST_GRADIENT = 2e4


@given(case=feature_cases(states=HALVES | st.just(0.0)), dtype=DTYPES)
def falsify_equal_states_are_at_distance_zero(subject: Any, device: str, case: FeatureCase, dtype: torch.dtype) -> None:
    case = case.to(dtype)
    case = case.but(teacher=case.student, layers=[(k, k) for k in range(len(case.student))])
    assert_equal(f"sum of {case.distance} for equal states", float(case.loss(subject, device).sum), 0.0)
    for gradient in case.gradients(subject, device):
        assert not bool(gradient.any()), f"the gradient is {gradient.tolist()} for equal states; expected exactly 0"


@given(
    case=feature_cases(states=HALVES), dtype=DTYPES, scale=st.sampled_from([0.0, 1e-7, 1e-5, 1e-4, 1e-3]), whose=MODELS
)
def falsify_vanishing_states_have_finite_gradients(
    subject: Any, device: str, case: FeatureCase, dtype: torch.dtype, scale: float, whose: str
) -> None:
    case = case.mapped(whose, lambda x: x * scale).to(dtype)
    allowed, _ = case.allowed(UNIT_ROUNDOFF[torch.float64 if dtype is torch.float64 else torch.float32])
    seen = float(case.loss(subject, device).sum)
    assert_close(f"sum of {case.distance} with {whose} times {scale:g}", seen, case.oracle_sum(), allowed, FORMULA)
    for gradient in case.gradients(subject, device):
        largest = gradient.double().abs().max().item()
        # A layer may be in every pair, at most B * T = 6 positions share no state; rounding adds less than 1 %.
        assert largest <= 1.01 * LARGEST_GRADIENT, f"{case.distance}, {whose} times {scale:g}: {gradient.tolist()}"


FORMULA = "sum over scored positions of the mean over pairs of layers"


def assert_is_the_oracles(subject: Any, case: FeatureCase, device: str, unit: float) -> None:
    """Assert that sum, count and gradients equal the oracle's; a gradient differs by at most one more rounding."""
    loss, (of_sum, of_gradient) = case.loss(subject, device), case.allowed(unit)
    assert_equal("count", int(loss.count), int(case.scored.sum()))
    assert_close(f"sum of {case.distance}", float(loss.sum), case.oracle_sum(), of_sum, FORMULA)
    pairs = zip(case.gradients(subject, device), case.oracle_gradients(), strict=True)
    for layer, (seen, expected) in enumerate(pairs):
        case_name = f"gradient of layer {layer} by {case.distance}"
        assert_equal(f"shape of the {case_name}", seen.shape, expected.shape)
        difference = (seen.double() - expected).abs() - expected.abs() * torch.finfo(seen.dtype).eps
        assert bool((difference <= of_gradient).all()), f"{case_name} is {seen.tolist()}, not {expected.tolist()}"


@given(case=feature_cases())
def falsify_sum_count_and_gradient(subject: Any, device: str, case: FeatureCase) -> None:
    assert_is_the_oracles(subject, case, device, UNIT_ROUNDOFF[torch.float64])


@given(case=feature_cases(states=HALVES), dtype=HALF_DTYPES, wide=st.sampled_from([None, "student", "teacher"]))
def falsify_half_precision_is_computed_in_float32(
    subject: Any, device: str, case: FeatureCase, dtype: torch.dtype, wide: str | None
) -> None:
    """Beside a float64 model, in float64.

    Each layer of the student is in one pair only, because autograd adds gradients in the dtype of the layer.
    """
    pairs = {i % len(case.student): (i, j) for i, j in case.layers}
    mixed = case.to(dtype).but(layers=list(pairs.values()), **({wide: getattr(case, wide)} if wide else {}))
    assert_is_the_oracles(subject, mixed, device, UNIT_ROUNDOFF[torch.float64 if wide else torch.float32])
    dtypes = {gradient.dtype for gradient in mixed.gradients(subject, device)}
    assert_equal("dtypes of the gradients", dtypes, {mixed.student[0].dtype})
    loss = mixed.loss(subject, device)
    assert_equal("dtypes of sum and count", (loss.sum.dtype, loss.count.dtype), (torch.float64, torch.int64))
