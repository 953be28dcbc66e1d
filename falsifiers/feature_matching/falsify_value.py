"""Attacks on the value of feature matching: sum, count, gradient, and the layers that take part."""

from __future__ import annotations

import math
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
    """Sum and gradient of narrow states are those of float32 arithmetic, with gradients in the dtype of the states.

    Each layer of the student is in one pair only, because autograd adds gradients in the dtype of the layer.
    """
    pairs = {i % len(case.student): (i, j) for i, j in case.layers}
    case = case.to(dtype).but(layers=list(pairs.values()))
    assert_is_the_oracles(subject, case, device, UNIT_ROUNDOFF[torch.float32])
    for gradient in case.gradients(subject, device):
        assert gradient.dtype is dtype, f"the gradient is {gradient.dtype}; expected {dtype}, as the student's states"


@given(case=feature_cases(states=HALVES), wide=st.sampled_from(["student", "teacher"]))
def falsify_wider_dtype_is_used(subject: Any, device: str, case: FeatureCase, wide: str) -> None:
    """Of a float64 and a float32 or half-precision model the computation is in float64; sum and count are wide."""
    for narrow in (torch.float32, torch.bfloat16):
        mixed = case.to(narrow).but(**{wide: getattr(case, wide)})
        loss = mixed.loss(subject, device)
        assert (loss.sum.dtype, loss.count.dtype) == (torch.float64, torch.int64), (
            f"sum and count are {loss.sum.dtype} and {loss.count.dtype}; expected float64 and int64"
        )
        assert_close(f"sum of {case.distance}", float(loss.sum), mixed.oracle_sum(), mixed.allowed()[0], FORMULA)


@given(case=feature_cases())
def falsify_other_layers_have_no_influence(subject: Any, device: str, case: FeatureCase) -> None:
    changed = {}
    for name, states, used in zip(
        ("student", "teacher"), (case.student, case.teacher), zip(*case.layers, strict=True), strict=True
    ):
        chosen = {index % len(states) for index in used}
        changed[name] = [x if k in chosen else torch.full_like(x, math.nan) for k, x in enumerate(states)]
    seen, before = case.but(**changed).loss(subject, device).sum, case.loss(subject, device).sum
    assert torch.equal(seen, before), f"sum changed from {before} to {seen} with NaN outside of the pairs {case.layers}"
    for k, gradient in enumerate(case.but(**changed).gradients(subject, device)):
        expected = case.gradients(subject, device)[k]
        assert torch.equal(gradient, expected), f"gradient of layer {k} changed from {expected} to {gradient}"


def falsify_sums_are_float64(subject: Any, device: str) -> None:
    """Sums of float32 terms, over features, positions and layers, are float64: not all of them are float32 numbers.

    Nearly every float64 sum of many float32 terms has more bits than a float32 number.
    """
    generator = torch.Generator().manual_seed(0)
    student, teacher = ([torch.randn(1, 32, 64, generator=generator) for _ in range(2)] for _ in range(2))
    for distance in ("cosine", "l2"):
        case = FeatureCase(student, teacher, torch.ones(1, 32, dtype=torch.bool), [(0, 0)], distance)
        one = [case.but(scored=torch.arange(32)[None] == t) for t in range(32)]
        many = [case.but(scored=torch.arange(32)[None] <= t) for t in range(1, 32)]
        pairs = [each.but(layers=[(0, 0), (1, 1), (0, 1)]) for each in one]
        for axis, cases in (("features", one), ("positions", many), ("layers", pairs)):
            sums = [float(each.loss(subject, device).sum) for each in cases]
            narrow = [x for x in sums if float(torch.tensor(x, dtype=torch.float32)) == x]
            assert len(narrow) < len(sums), (
                f"all of {len(sums)} sums of {distance} over {axis} are float32 numbers, such as {sums[0]!r}; expected "
                f"float64 sums"
            )
        _assert_sum_of_positions(subject, device, case, one)


def _assert_sum_of_positions(subject: Any, device: str, case: FeatureCase, one: list[FeatureCase]) -> None:
    alone = [float(each.loss(subject, device).sum) for each in one]
    seen, expected = float(case.loss(subject, device).sum), math.fsum(alone)
    allowed = 2 * len(alone) * UNIT_ROUNDOFF[torch.float64] * expected
    assert_close(f"sum of {case.distance} over 32 positions", seen, expected, allowed, "the sum of the positions alone")
