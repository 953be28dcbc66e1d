"""Attacks on the projections of feature matching: they get the scored states, train, and pass a gradient on."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from falsifiers.feature_matching.cases import FeatureCase, feature_cases
from falsifiers.feature_matching.falsify_value import FORMULA, assert_gradient
from falsifiers.support.oracles import UNIT_ROUNDOFF, assert_close
from falsifiers.support.strategies import HALVES


class Recorded(nn.Module):
    """A linear layer of small integers, exact in every dtype, that records its input."""

    def __init__(self, width: int, wider: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randint(-2, 3, (wider, width), generator=generator).double())
        self.seen: list[Tensor] = []

    def forward(self, rows_NS: Tensor) -> Tensor:
        self.seen.append(rows_NS.detach())
        return rows_NS @ self.weight.to(rows_NS.dtype).mT


@given(case=feature_cases(states=HALVES), more=st.integers(0, 2), dtype=st.sampled_from([torch.float64, torch.float16]))
def falsify_each_pair_has_its_projection(
    subject: Any, device: str, case: FeatureCase, more: int, dtype: torch.dtype
) -> None:
    case = case.to(dtype).but(teacher=[nn.functional.pad(x, (0, more), value=1.0) for x in case.teacher])
    wide = torch.promote_types(dtype, torch.float32)
    width = case.student[0].shape[-1]
    projections = [Recorded(width, width + more, seed).to(device) for seed in range(len(case.layers))]
    leaves = [x.to(device).requires_grad_() for x in case.student]
    teacher, scored = [x.to(dtype).to(device) for x in case.teacher], case.scored.to(device)
    settings = {"layers": case.layers, "distance": case.distance, "projections": projections}
    loss = subject.feature_loss(leaves, teacher, scored, **settings)
    loss.sum.backward()
    for (i, _), projection in zip(case.layers, projections, strict=True):
        expected = case.student[i][case.scored].to(wide)
        assert len(projection.seen) == 1 and torch.equal(projection.seen[0].cpu(), expected), (
            f"the projection of layer {i} was called with {projection.seen}; expected once, with {expected}"
        )
        assert projection.seen[0].dtype is wide, f"the projection was called in {projection.seen[0].dtype}, not {wide}"
    _assert_is_the_oracles(case, loss, leaves, projections, UNIT_ROUNDOFF[wide])


def _assert_is_the_oracles(
    case: FeatureCase, loss: Any, leaves: list[Tensor], projections: list[Recorded], unit: float
) -> None:
    """Assert sum and gradients against the oracle of each pair, whose student is projected in float64."""
    sums, allowed_sum, allowed_gradient = [], 0.0, 0.0
    by_states = [torch.zeros(x.shape, dtype=torch.float64) for x in leaves]
    for (i, j), projection in zip(case.layers, projections, strict=True):
        weight_WS, states_BTS = projection.weight.detach().cpu(), case.student[i].double()
        alone = case.but(student=[states_BTS @ weight_WS.mT], teacher=[case.teacher[j]], layers=[(0, 0)])
        (by_rows_BTW,) = (x / len(case.layers) for x in alone.oracle_gradients())
        errors, size = alone.allowed(unit), 2 + weight_WS.numel() * 2 + states_BTS.abs().max().item()
        sums.append(alone.oracle_sum())
        allowed_sum, allowed_gradient = allowed_sum + errors[0], allowed_gradient + errors[1] * size
        by_states[i] += by_rows_BTW @ weight_WS
        by_weight_WS = torch.einsum("btw,bts->ws", by_rows_BTW, states_BTS)
        assert projection.weight.grad is not None, f"the projection of layer {i} got no gradient"
        assert_gradient(
            "gradient of a projection", projection.weight.grad.cpu(), by_weight_WS, allowed_gradient + errors[1] * size
        )
    expected = math.fsum(sums) / len(sums)
    assert_close(f"sum of {case.distance} after projections", float(loss.sum.detach()), expected, allowed_sum, FORMULA)
    for leaf, expected_BTS in zip(leaves, by_states, strict=True):
        seen = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        assert_gradient("gradient through projections", seen.cpu(), expected_BTS, 2 * allowed_gradient)
