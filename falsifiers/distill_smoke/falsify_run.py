"""Attacks on smoke runs from the command line: predicates over the runs of `falsifiers/distill_smoke/runs.py`."""

from __future__ import annotations

from typing import Any

from falsifiers.distill_report.summaries import PROJECTION, SUMMARY
from falsifiers.distill_smoke.cases import changes, steps_per_epoch


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
