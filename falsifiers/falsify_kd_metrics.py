"""Attacks on what a distillation step reports.

The subject is that of `falsify_kd_step`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers import oracles
from falsifiers.kd_steps import batch_of, recorded_step, table_step
from falsifiers.strategies import IGNORED, StepCase, step_cases


@given(case=step_cases())
def falsify_metrics(subject: Any, case: StepCase) -> None:
    """Cross-entropy and KL are sums in nats with their counts, whatever their weights."""
    result, _ = recorded_step(subject, case)
    shifted = case.shifted()
    for name, weights, formula in (
        ("cross_entropy", (1.0, 0.0, 1.0), "-log softmax(s)[y]"),
        ("kl", (0.0, 1.0, case.temperature**2), "KL(teacher ‖ student) at τ, without τ²"),
    ):
        alone = shifted.but(ce_weight=weights[0], kd_weight=weights[1])
        assert name in result.metrics, f"metrics are {sorted(result.metrics)}; {name} is missing"
        metric = result.metrics[name]
        oracles.assert_close(
            f"{name} sum", metric.sum, alone.oracle_nats() / weights[2], 2 * alone.allowed_nats() / weights[2], formula
        )
        assert metric.count == result.count, f"{name} counts {metric.count} tokens, the step {result.count}"


class LiveStudent:
    """Its logits are what it learns: a gradient changes them where the step reads them, and is used up."""

    def __init__(self, logits: Tensor) -> None:
        self.logits, self.vocab_size = logits, logits.shape[-1]

    def forward(self, batch: Any) -> LiveStudent:
        return self

    def backward(self, logit_gradient: Tensor) -> None:
        self.logits.sub_(logit_gradient)
        logit_gradient.fill_(math.nan)


@given(case=step_cases())
def falsify_a_step_reports_what_it_saw(subject: Any, case: StepCase) -> None:
    """The result is from before the gradient, also where the student's logits change as it is applied."""
    expected, gradient = recorded_step(subject, case)
    logits = case.student[case.tokens]
    live = LiveStudent(logits.clone())
    result = subject.kd_step(subject.FixtureTeacher(case.teacher), live, batch_of(subject, case), **case.settings)
    assert result == expected, (
        f"a student whose logits are what it learns gets {result}; expected {expected}, as before the gradient"
    )
    assert torch.equal(live.logits, logits - gradient), "the student got another gradient than one that only reads"


@given(
    shape=st.sampled_from([(1, 1), (2, 3), (0, 3), (2, 0), (1, 2)]),
    weights=st.sampled_from([(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]),
    scored_first=st.booleans(),
)
def falsify_step_with_nothing_scored(
    subject: Any, device: str, shape: tuple[int, int], weights: tuple[float, float], scored_first: bool
) -> None:
    """Loss and metrics absent, not 0; count 0; a gradient of zeros, applied. A first token's label predicts nothing."""
    labels = torch.full(shape, IGNORED)
    if scored_first:
        labels[:, :1] = 1
    table = torch.tensor([[0.5, -1.0], [2.0, 0.0]], dtype=torch.float64)
    case = StepCase(torch.ones(shape, dtype=torch.int64), labels, table, table.flip(0), 2.0, *weights)
    result, gradient = recorded_step(subject, case, device)
    assert result.loss is None, f"the loss is {result.loss} where nothing is scored; expected None"
    assert (result.sum, result.count, dict(result.metrics)) == (0.0, 0, {}), (
        f"sum, count, metrics are {result.sum}, {result.count}, {result.metrics} where nothing is scored; expected "
        "0, 0, none"
    )
    assert not bool(gradient.any()), f"the gradient is {gradient.tolist()} where nothing is scored; expected zeros"
    _, after = table_step(subject, case, 1.0, device)
    assert torch.equal(after, table), f"the table moved to {after.tolist()} where nothing is scored"
