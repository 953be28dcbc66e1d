"""Attacks on what a run reports: the contexts that callbacks receive, and the result of the run.

The subject is that of `real_run`. The expected numbers come from a plain loop over the same batches.
"""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given

from falsifiers.callbacks.plain_loop import ByHand, RealRun, Text, assert_same_fields, same, texts


@given(text=texts())
def falsify_context_fields(subject: Any, device: str, text: Text) -> None:
    """Step, epoch, loss of the step as computed by `kd_step`, rate, best loss, tokens, and seconds since the start."""
    seen, expected = RealRun(subject, text, device), ByHand(text, device)
    assert seen.asked == expected.asked, f"batches were requested as {seen.asked}; expected {expected.asked}"
    every = [[m for m in side.moments if m.event != "on_epoch_end"] for side in (seen, expected)]
    assert_same_fields(*every, ("step", "epoch", "loss", "learning_rate", "best_loss", "elapsed_s", "tokens"))


@given(text=texts())
def falsify_train_result(subject: Any, device: str, text: Text) -> None:
    """First, last and smallest finite loss of the steps that scored a token; whether all were finite; the totals."""
    result, by_hand = RealRun(subject, text, device).result, ByHand(text, device)
    scored = by_hand.scored or [None]
    expected = {
        "initial_loss": scored[0],
        "final_loss": scored[-1],
        "best_loss": by_hand.best,
        "finite": all(map(math.isfinite, by_hand.scored)),
        "steps_completed": by_hand.step,
        "tokens": by_hand.tokens,
        "elapsed_s": by_hand.elapsed,
        "stopped": False,
    }
    for name, wanted in expected.items():
        assert same(getattr(result, name), wanted), f"{name} is {getattr(result, name)}; expected {wanted}"
    rate = by_hand.step / max(by_hand.elapsed, 1e-9)
    assert same(result.steps_per_s, rate), f"{by_hand.step} steps in {by_hand.elapsed} s: {result.steps_per_s} a second"
