"""Attacks on what a run reports: the contexts that callbacks receive, and the result of the run.

The subject is that of `real_run`. The expected numbers come from a plain loop over the same batches.
"""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.callbacks.lifecycle import Script, scripts
from falsifiers.callbacks.plain_loop import ByHand, RealRun, Text, assert_same_fields, same, texts
from falsifiers.callbacks.real_run import parts, recording_callbacks, run


@given(text=texts())
def falsify_context_fields(subject: Any, device: str, text: Text) -> None:
    seen, expected = RealRun(subject, text, device), ByHand(text, device)
    assert seen.asked == expected.asked, f"batches were requested as {seen.asked}; expected {expected.asked}"
    every = [[m for m in side.moments if m.event != "on_epoch_end"] for side in (seen, expected)]
    assert_same_fields(*every, ("step", "epoch", "loss", "learning_rate", "best_loss", "elapsed_s", "tokens"))


@given(text=texts())
def falsify_train_result(subject: Any, device: str, text: Text) -> None:
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


@given(script=scripts(st.none(), fewest=1), name=st.sampled_from(["lost", "validation", "_private", "epoch_step"]))
def falsify_unknown_fields_are_refused(subject: Any, script: Script, name: str) -> None:
    def act(callback: int, event: str, context: Any) -> None:
        for each in (context, context.snapshot()):
            try:
                got = getattr(each, name)
            except AttributeError as error:
                assert name in str(error), f"{name!r} was refused with {str(error)!r}, which does not name it"
            else:
                raise AssertionError(f"{event}: {name!r} is no field of a context, but is {got!r}")
            assert (each.run, each.attempt) == ("", 1), f"{event}: run and attempt are {(each.run, each.attempt)}"

    run(subject, script, recording_callbacks(len(script.answers), act), parts())
