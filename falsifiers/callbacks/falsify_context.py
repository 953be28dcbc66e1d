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
    seen, expected = RealRun(subject, text, device), ByHand(text, device)
    assert seen.asked == expected.asked, f"batches were requested as {seen.asked}; expected {expected.asked}"
    every = [[m for m in side.moments if m.event != "on_epoch_end"] for side in (seen, expected)]
    assert_same_fields(*every, ("step", "epoch", "loss", "learning_rate", "best_loss", "elapsed_s", "tokens"))
    _assert_result(seen.result, expected)


def _assert_result(result: Any, by_hand: ByHand) -> None:
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
        "steps_per_s": by_hand.step / max(by_hand.elapsed, 1e-9),
    }
    for name, wanted in expected.items():
        assert same(getattr(result, name), wanted), f"{name} is {getattr(result, name)}; expected {wanted}"
