"""Attacks on the length of a smoke run and on the number of steps that it reports.

The subject has `distill`, as `reference_trainer.pipeline.distill` does.
"""

from __future__ import annotations

import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.distill_smoke.cases import (
    Ran,
    changes,
    distilled,
    finished,
    place,
    planned,
    raising_at,
    steps_per_epoch,
    stopping_at,
)
from falsifiers.support.run_lines import SMOKE_PROJECTION, matcher
from reference_trainer.errors import SmokeError

COUNTS, EPOCHS, BATCH_SIZES = st.integers(1, 12), st.integers(1, 3), st.sampled_from([4, 10, 3, 2])


def _assert_summary(ran: Ran, steps: int) -> None:
    reported = ran.reported_steps()
    assert reported == [str(steps)], f"{steps} steps ran and the summaries report {reported}: {ran.lines}"
    both = [matcher(SMOKE_PROJECTION).fullmatch(line) is not None for line in ran.starting_with("[SMOKE]")]
    assert both == [False, True], f"expected the summary, then the projection, once each: {ran.lines}"


@given(n=COUNTS, epochs=EPOCHS, batch_size=BATCH_SIZES)
@example(n=1, epochs=1, batch_size=4)
@example(n=3, epochs=1, batch_size=4)
@example(n=4, epochs=1, batch_size=4)
@example(n=4, epochs=3, batch_size=4)
def falsify_reported_steps_ran(subject: Any, device: str, n: int, epochs: int, batch_size: int) -> None:
    with place() as where:
        ran = finished(subject, where, device=device, smoke=n, epochs=epochs, batch_size=batch_size)
    expected = min(n, planned(batch_size=batch_size, epochs=epochs))
    steps = [event["step"] for event in ran.events if event["event"] == "on_step_end"]
    assert steps == list(range(1, expected + 1)), f"the trace has the steps {steps}; expected 1 to {expected}"
    reported = ran.result.train.steps_completed
    assert reported == expected, f"the result reports {reported} steps; expected {expected}"
    assert ran.result.output is None, f"a smoke run reports the output {ran.result.output}; expected None"
    _assert_summary(ran, expected)
    epochs_run = -(-expected // steps_per_epoch(batch_size))
    for hook in ("on_epoch_begin", "on_epoch_end"):
        count = sum(event["event"] == hook for event in ran.events)
        assert count == epochs_run, f"{count} times {hook} in {expected} steps; expected {epochs_run}"


def _steps_before(hook: str, call: int, n: int) -> int:
    """Return the steps of a run of N that a callback ends in the `call`-th call of `hook`."""
    epochs = {"on_step_end": 0, "on_epoch_begin": call - 1, "on_epoch_end": call}[hook]
    return min(n, call if hook == "on_step_end" else epochs * steps_per_epoch())


@given(n=COUNTS, hook=st.sampled_from(["on_step_end", "on_epoch_end", "on_epoch_begin"]), call=st.integers(1, 4))
@example(n=9, hook="on_step_end", call=2)
@example(n=9, hook="on_epoch_begin", call=2)
@example(n=9, hook="on_epoch_begin", call=1)
def falsify_ended_by_a_callback(subject: Any, device: str, n: int, hook: str, call: int) -> None:
    steps = _steps_before(hook, call, n)
    with place() as where:
        before = where.listing()
        callbacks = [stopping_at(hook, call)]
        ran = distilled(subject, where, device=device, smoke=n, epochs=9, callbacks=callbacks)
        assert changes(before, where.listing()) == [], f"{changes(before, where.listing())} changed; expected no file"
    if steps == 0:
        assert_no_step_ran(ran)
        return
    assert ran.error is None, f"a run that a callback ended after {steps} steps raised {ran.error!r}"
    reported = ran.result.train.steps_completed
    assert reported == steps, f"{reported} steps ran; expected {steps}, ended in call {call} of {hook}"
    _assert_summary(ran, steps)


def assert_no_step_ran(ran: Ran) -> None:
    """The run ended with a SmokeError and printed neither line."""
    assert isinstance(ran.error, SmokeError), f"no step ran and the run ended with {ran.error!r}"
    assert re.search(r"\b0\b", str(ran.error)), f"the error does not have the number of steps, 0: {ran.error}"
    assert ran.starting_with("[SMOKE]") == [], f"no step ran, but these lines were printed: {ran.lines}"


@given(n=COUNTS, step=st.integers(1, 3), error=st.sampled_from([ValueError, KeyboardInterrupt, MemoryError]))
def falsify_exception_ends_without_summary(
    subject: Any, device: str, n: int, step: int, error: type[BaseException]
) -> None:
    raised = error("by the test")
    with place() as where:
        before = where.listing()
        callbacks = [raising_at(step, raised)]
        ran = distilled(subject, where, device=device, smoke=n + step - 1, callbacks=callbacks)
        assert changes(before, where.listing()) == [], f"{changes(before, where.listing())} changed; expected no file"
    assert ran.error is raised, f"{raised!r} was raised in step {step}, and the run ended with {ran.error!r}"
    said = [line for line in ran.lines[1:] if "smoke" in line.lower()]
    assert not said, f"after the exception {said} were printed; expected no line about smoke mode but the first"
