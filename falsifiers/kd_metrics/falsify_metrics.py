"""Attacks on the result and metrics of a distillation step."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.support import oracles
from falsifiers.support.steps import batch_of, recorded_step, table_step
from falsifiers.support.strategies import IGNORED, StepCase, step_cases


@given(case=step_cases())
def falsify_metrics_are_sums_with_counts(subject: Any, device: str, case: StepCase) -> None:
    """The metrics hard_loss, soft_loss and kl_at_T are sums in nats with their counts, whatever the weights."""
    result, _ = recorded_step(subject, case, device)
    shifted = case.shifted()
    for name, weights, formula in (
        ("hard_loss", (1.0, 0.0, 1.0), "-log softmax(s)[y]"),
        ("soft_loss", (0.0, 1.0, 1.0), "τ²·KL(teacher ‖ student) at τ"),
        ("kl_at_T", (0.0, 1.0, case.temperature**2), "KL(teacher ‖ student) at τ, without τ²"),
    ):
        alone = shifted.but(ce_weight=weights[0], kd_weight=weights[1])
        assert name in result.metrics, f"metrics are {sorted(result.metrics)}; expected {name} too"
        metric = result.metrics[name]
        oracles.assert_close(
            f"{name} sum", metric.sum, alone.oracle_nats() / weights[2], 2 * alone.allowed_nats() / weights[2], formula
        )
        assert metric.count == result.count, (
            f"count of {name} is {metric.count}; expected {result.count}, as in the step"
        )


class LiveStudent:
    """A student whose logits are its parameters: `backward` changes them in place and overwrites the gradient."""

    def __init__(self, logits: Tensor) -> None:
        self.logits, self.vocab_size = logits, logits.shape[-1]

    def forward(self, batch: Any) -> LiveStudent:
        return self

    def backward(self, logit_gradient: Tensor) -> None:
        self.logits.sub_(logit_gradient)
        logit_gradient.fill_(math.nan)


@given(case=step_cases())
def falsify_result_precedes_the_update(subject: Any, case: StepCase) -> None:
    """The result is measured before the gradient is applied, even if applying it changes the logits in place."""
    expected, gradient = recorded_step(subject, case)
    logits = case.student[case.tokens]
    live = LiveStudent(logits.clone())
    result = subject.kd_step(subject.FixtureTeacher(case.teacher), live, batch_of(subject, case), **case.settings)
    assert result == expected, (
        f"the result is {result} for a student whose logits are its parameters; expected {expected}"
    )
    assert torch.equal(live.logits, logits - gradient), (
        "the gradient differs from that of a student that only records it"
    )


@given(
    shape=st.sampled_from([(1, 1), (2, 3), (0, 3), (2, 0), (1, 2)]),
    weights=st.sampled_from([(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]),
    scored_first=st.booleans(),
)
def falsify_step_with_nothing_scored(
    subject: Any, device: str, shape: tuple[int, int], weights: tuple[float, float], scored_first: bool
) -> None:
    """Without scored tokens, loss and metrics are absent, and count and gradient are 0.

    The label of the first token is the target of no logits.
    """
    labels = torch.full(shape, IGNORED)
    if scored_first:
        labels[:, :1] = 1
    table = torch.tensor([[0.5, -1.0], [2.0, 0.0]], dtype=torch.float64)
    case = StepCase(torch.ones(shape, dtype=torch.int64), labels, table, table.flip(0), 2.0, *weights)
    result, gradient = recorded_step(subject, case, device)
    assert result.loss is None, f"the loss is {result.loss} with no scored token; expected None"
    assert (result.sum, result.count, dict(result.metrics)) == (0.0, 0, {}), (
        f"sum, count, metrics are {result.sum}, {result.count}, {result.metrics} with no scored token; expected "
        "0, 0, none"
    )
    assert not bool(gradient.any()), f"the gradient is {gradient.tolist()} with no scored token; expected zeros"
    _, after = table_step(subject, case, 1.0, device)
    assert torch.equal(after, table), f"the table changed to {after.tolist()} with no scored token"
