"""Attacks on runs that accumulate: their updates, learning rates, clipping, logged means and the data they consume.

The run is compared with gradient descent in closed form, one big batch a step.
"""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.runs_by_hand import LONG, RunCase, assert_same_run, by_hand, real_run, run_cases


@given(case=run_cases())
def falsify_run_equals_one_big_batch_a_step(subject: Any, device: str, case: RunCase) -> None:
    """Weights, learning rate, loss, tokens, gradient norm and logged means of every step are those of big batches."""
    assert_same_run(real_run(subject, case, device), by_hand(case))


@given(case=run_cases(), accumulation=st.integers(1, 5))
def falsify_every_micro_batch_is_consumed_once(subject: Any, case: RunCase, accumulation: int) -> None:
    """Each epoch asks for its micro-batches in order, once, and for no other; the last window may be partial."""
    case = case.but(accumulation=accumulation)
    asked = real_run(subject, case).asked
    expected = [(epoch, k) for epoch in range(1, case.epochs + 1) for k in range(1, len(case.micro_batches) + 1)]
    assert asked == expected, f"micro-batches (epoch, number) were asked for as {asked}; expected {expected}"


def falsify_learning_rate_by_accumulation(subject: Any) -> None:
    """The learning rate of optimizer step k is the same table for 1, 2 and 4 micro-batches a step."""
    for accumulation in (1, 2, 4):
        run = real_run(subject, LONG.but(accumulation=accumulation))
        expected = [LONG.rate(step) for step in range(1, len(run.moments) + 1)]
        seen = [moment.learning_rate for moment in run.moments]
        assert len(seen) == 2 * -(-len(LONG.micro_batches) // accumulation) and seen == expected, (
            f"with {accumulation} micro-batches a step the learning rates are {seen}; expected {expected}"
        )
    assert torch.isfinite(run.moments[-1].weights).all()
