"""Attacks on the steps of smoke runs, the files that they leave alone, and the runs of `distill_smoke/runs.py`."""

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
    steps_per_epoch,
)
from falsifiers.support.acting import acting
from falsifiers.support.run_lines import SMOKE_OUTPUT, SMOKE_PROJECTION, SMOKE_SUMMARY, matcher
from reference_trainer import Action

SUMMARY, PROJECTION = matcher(SMOKE_SUMMARY), matcher(SMOKE_PROJECTION)
COUNTS, EPOCHS, BATCH_SIZES = st.integers(1, 12), st.integers(1, 3), st.sampled_from([4, 10, 3, 2])


def _assert_summary(ran: Ran, steps: int) -> None:
    reported = ran.reported_steps()
    assert reported == [str(steps)], f"{steps} steps ran and the summaries report {reported}: {ran.lines}"
    both = [PROJECTION.fullmatch(line) is not None for line in ran.starting_with("[SMOKE]")]
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
        ran = finished(subject, where, callbacks=[acting(lambda: Action.STOP, step=stop)] if stop else [], **chosen)
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


@given(n=COUNTS, is_file=st.booleans())
def falsify_full_output_directory_is_no_error(subject: Any, device: str, n: int, is_file: bool) -> None:
    with place() as where:
        if is_file:
            where.out.write_text("taken")
        else:
            where.out.mkdir()
            (where.out / "a").touch()
        before = where.listing()
        smoked, long = (distilled(subject, where, traced=False, device=device, smoke=steps) for steps in (n, None))
        changed = changes(before, where.listing())
    assert long.error is not None, "a full run into an output that is taken is accepted; expected a refusal"
    assert smoked.error is None and not changed, f"a smoke run: error {smoked.error!r}, changed files {changed}"
    assert len(smoked.reported_steps()) == 1, f"the summaries of a smoke run: {smoked.lines}"
    warning = SMOKE_OUTPUT.format(error=long.error)
    assert smoked.lines.count(warning) == 1, f"expected the line {warning!r} in {smoked.lines}"


def _said(run: Any) -> str:
    tail = [*run.result["lines"][-12:], *run.result["complaints"][-12:]]
    return f"exit {run.result['exit_code']}, at last: {tail}"


def falsify_requested_steps_run(run: Any) -> None:
    wanted, epochs = run.arguments["steps"], run.arguments["epochs"]
    events = [event["event"] for event in run.trace]
    steps = [event["step"] for event in run.trace if event["event"] == "on_step_end"]
    assert steps == list(range(1, wanted + 1)), f"{len(steps)} steps, {wanted} asked of {epochs} epochs: {_said(run)}"
    begun = -(-wanted // steps_per_epoch(run.arguments["batch_size"]))
    counts = {hook: events.count(hook) for hook in ("on_epoch_begin", "on_epoch_end", "on_train_end")}
    assert counts == {"on_epoch_begin": begun, "on_epoch_end": begun, "on_train_end": 1}, f"{counts}; {begun} epochs"
    reported = [match[1] for line in run.result["lines"] if (match := SUMMARY.fullmatch(line))]
    assert reported == [str(wanted)], f"the summaries report {reported} steps; expected {wanted}: {_said(run)}"
    assert run.result["exit_code"] == 0 and not run.result["complaints"], f"the run failed: {_said(run)}"


def falsify_two_lines_report_correct_numbers(run: Any) -> None:
    lines = [line for line in run.result["lines"] if "[SMOKE]" in line]
    assert len(lines) == 2, f"{len(lines)} lines with [SMOKE]: {_said(run)}"
    first, second = SUMMARY.fullmatch(lines[0]), PROJECTION.fullmatch(lines[1])
    assert first and second, f"{lines} do not have the documented format"
    losses = [event["loss"] for event in run.trace if event["event"] == "on_step_end"]
    traced = (f"{losses[0]:.4f}", f"{losses[-1]:.4f}")
    assert (first[3], first[4]) == traced, f"{lines[0]!r}, the traced losses went from {losses[0]} to {losses[-1]}"
    elapsed, ended = float(first[2]), run.trace[-1]["elapsed_s"]
    # A busy machine may take its time between the last event and the line.
    assert -0.006 <= elapsed - ended <= 5, f"{elapsed} s are reported, the trace ended after {ended} s"
    steps, low, high = int(first[1]), elapsed - 0.005, elapsed + 0.005
    assert steps / high - 0.006 <= float(first[5]) <= steps / max(low, 1e-9) + 0.006, f"{lines[0]!r}: steps / seconds"
    for text, unit, rounding in ((second[2], 3600, 0.006), (second[3], 60, 0.06), (second[4], 1, 0.06)):
        least, most = (x / steps * 50000 / unit for x in (low, high))
        assert least - rounding <= float(text) <= most + rounding, f"{lines}: expected {least} to {most}, in {unit} s"


def falsify_only_the_trace_is_written(run: Any) -> None:
    assert run.trace, f"no trace was written: {_said(run)}"
    changed = changes(run.result["before"], run.result["after"])
    assert changed == ["work/trace.jsonl"], f"the run changed {changed}; expected work/trace.jsonl alone: {_said(run)}"
