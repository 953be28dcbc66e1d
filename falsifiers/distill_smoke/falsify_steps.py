"""Attacks on the length of a smoke run and on the number of steps that it reports.

The subject has `distill`, as `reference_trainer.pipeline.distill` does.
"""

from __future__ import annotations

import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.distill_smoke.cases import Ran, finished, place, planned, steps_per_epoch, stopping_at
from falsifiers.support.run_lines import SMOKE_PROJECTION, matcher
from reference_trainer.errors import SmokeError

COUNTS, EPOCHS, BATCH_SIZES = st.integers(1, 12), st.integers(1, 3), st.sampled_from([4, 10, 3, 2])


def _assert_summary(ran: Ran, steps: int) -> None:
    reported = ran.reported_steps()
    assert reported == [str(steps)], f"{steps} steps ran and the summaries report {reported}: {ran.lines}"
    both = [matcher(SMOKE_PROJECTION).fullmatch(line) is not None for line in ran.starting_with("[SMOKE]")]
    assert both == [False, True], f"expected the summary, then the projection, once each: {ran.lines}"


@given(n=COUNTS, epochs=EPOCHS, batch_size=BATCH_SIZES, stop=st.none() | st.integers(1, 12))
@example(n=4, epochs=1, batch_size=4, stop=None)
@example(n=4, epochs=3, batch_size=4, stop=None)
@example(n=9, epochs=9, batch_size=4, stop=2)
def falsify_reported_steps_ran(
    subject: Any, device: str, n: int, epochs: int, batch_size: int, stop: int | None
) -> None:
    """stop: the step after which a callback ends the run."""
    chosen = {"device": device, "smoke": n, "epochs": epochs, "batch_size": batch_size}
    with place() as where:
        ran = finished(subject, where, callbacks=[stopping_at("on_step_end", stop)] if stop else [], **chosen)
    expected = min(n, planned(batch_size=batch_size, epochs=epochs), stop or n)
    steps = [event["step"] for event in ran.events if event["event"] == "on_step_end"]
    assert steps == list(range(1, expected + 1)), f"the trace has the steps {steps}; expected 1 to {expected}"
    reported = ran.result.train.steps_completed, ran.result.output, ran.result.held_back
    assert reported == (expected, None, {}), f"the result reports {reported}; expected {expected} steps and no output"
    _assert_summary(ran, expected)
    epochs_run = -(-expected // steps_per_epoch(batch_size))
    for hook in ("on_epoch_begin", "on_epoch_end"):
        count = sum(event["event"] == hook for event in ran.events)
        assert count == epochs_run, f"{count} times {hook} in {expected} steps; expected {epochs_run}"


def assert_no_step_ran(ran: Ran) -> None:
    """The run ended with a SmokeError and printed neither line."""
    assert isinstance(ran.error, SmokeError), f"no step ran and the run ended with {ran.error!r}"
    assert re.search(r"\b0\b", str(ran.error)), f"the error does not have the number of steps, 0: {ran.error}"
    assert ran.starting_with("[SMOKE]") == [], f"no step ran, but these lines were printed: {ran.lines}"
