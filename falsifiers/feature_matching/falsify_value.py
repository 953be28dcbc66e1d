"""Attacks on the value of feature matching: sum, count, gradient, and the layers that take part."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.feature_matching.cases import FeatureCase, feature_cases
from falsifiers.support.oracles import UNIT_ROUNDOFF, assert_close
from falsifiers.support.strategies import HALF_DTYPES, HALVES

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
    assert bool((difference <= allowed).all()), (
        f"{what} is {seen.tolist()}; expected {expected.tolist()}, within {allowed:.3g}"
    )


@given(case=feature_cases())
def falsify_sum_count_and_gradient(subject: Any, device: str, case: FeatureCase) -> None:
    assert_is_the_oracles(subject, case, device, UNIT_ROUNDOFF[torch.float64])


@given(case=feature_cases(dtype=torch.float32, states=HALVES), dtype=HALF_DTYPES)
def falsify_half_precision_is_computed_in_float32(
    subject: Any, device: str, case: FeatureCase, dtype: torch.dtype
) -> None:
    """Each layer of the student is in one pair only, because autograd adds gradients in the dtype of the layer."""
    pairs = {i % len(case.student): (i, j) for i, j in case.layers}
    case = case.to(dtype).but(layers=list(pairs.values()))
    assert_is_the_oracles(subject, case, device, UNIT_ROUNDOFF[torch.float32])
    for gradient in case.gradients(subject, device):
        assert gradient.dtype is dtype, f"the gradient is {gradient.dtype}; expected {dtype}, as the student's states"


@given(case=feature_cases(states=HALVES), wide=st.sampled_from(["student", "teacher"]))
def falsify_wider_dtype_is_used(subject: Any, device: str, case: FeatureCase, wide: str) -> None:
    for narrow in (torch.float32, torch.bfloat16):
        mixed = case.to(narrow).but(**{wide: getattr(case, wide)})
        loss = mixed.loss(subject, device)
        assert (loss.sum.dtype, loss.count.dtype) == (torch.float64, torch.int64), (
            f"sum and count are {loss.sum.dtype} and {loss.count.dtype}; expected float64 and int64"
        )
        assert_close(f"sum of {case.distance}", float(loss.sum), mixed.oracle_sum(), mixed.allowed()[0], FORMULA)
