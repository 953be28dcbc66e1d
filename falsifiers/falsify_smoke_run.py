"""Attacks on smoke runs from the command line: predicates over the runs of `falsifiers/smoke_runs.py`."""

from __future__ import annotations

from typing import Any

from falsifiers.smoke_cases import changes, steps_per_epoch
from falsifiers.smoke_summaries import PROJECTION, SUMMARY


def _said(run: Any) -> str:
    tail = [*run.result["lines"][-12:], *run.result["complaints"][-12:]]
    return f"exit {run.result['exit_code']}, at last: {tail}"


def falsify_steps_are_as_asked(run: Any) -> None:
    """N real steps, counted from 1, each epoch closed; the summary names N, and the process succeeds."""
    wanted, epochs = run.arguments["steps"], run.arguments["epochs"]
    events = [event["event"] for event in run.trace]
    steps = [event["step"] for event in run.trace if event["event"] == "on_step_end"]
    assert steps == list(range(1, wanted + 1)), f"{len(steps)} steps, {wanted} asked of {epochs} epochs: {_said(run)}"
    begun = -(-wanted // steps_per_epoch(run.arguments["batch_size"]))
    counts = {hook: events.count(hook) for hook in ("on_epoch_begin", "on_epoch_end", "on_train_end")}
    assert counts == {"on_epoch_begin": begun, "on_epoch_end": begun, "on_train_end": 1}, f"{counts}; {begun} epochs"
    told = [match[1] for line in run.result["lines"] if (match := SUMMARY.fullmatch(line))]
    assert told == [str(wanted)], f"the summaries tell of {told} steps, {wanted} ran: {_said(run)}"
    assert run.result["exit_code"] == 0, f"the run failed: {_said(run)}"


def falsify_two_lines_with_right_numbers(run: Any) -> None:
    """Summary, then projection, once each; losses as traced, throughput and projection from the time that is told."""
    lines = [line for line in run.result["lines"] if "[SMOKE]" in line]
    assert len(lines) == 2, f"{len(lines)} lines with [SMOKE]: {_said(run)}"
    first, second = SUMMARY.fullmatch(lines[0]), PROJECTION.fullmatch(lines[1])
    assert first and second, f"{lines} aren't of the form that dashboards read"
    losses = [event["loss"] for event in run.trace if event["event"] == "on_step_end"]
    traced = (f"{losses[0]:.4f}", f"{losses[-1]:.4f}")
    assert (first[3], first[4]) == traced, f"{lines[0]!r}, the traced losses went from {losses[0]} to {losses[-1]}"
    elapsed, ended = float(first[2]), run.trace[-1]["elapsed_s"]
    # A busy machine may take its time between the last event and the line.
    assert -0.006 <= elapsed - ended <= 5, f"{elapsed} s are told, the trace ended after {ended} s"
    steps, low, high = int(first[1]), elapsed - 0.005, elapsed + 0.005
    assert steps / high - 0.006 <= float(first[5]) <= steps / max(low, 1e-9) + 0.006, f"{lines[0]!r}: steps / seconds"
    for text, unit, rounding in ((second[2], 3600, 0.006), (second[3], 60, 0.06), (second[4], 1, 0.06)):
        least, most = (x / steps * 50000 / unit for x in (low, high))
        assert least - rounding <= float(text) <= most + rounding, f"{lines}: expected {least} to {most}, in {unit} s"


def falsify_nothing_is_left_but_the_trace(run: Any) -> None:
    """Text, cache, home, working directory and temporary files are as before, but for the trace that was asked for."""
    assert run.trace, f"no trace was written: {_said(run)}"
    changed = changes(run.result["before"], run.result["after"])
    assert changed == ["work/trace.jsonl"], f"the run changed {changed}; expected work/trace.jsonl alone: {_said(run)}"


def falsify_first_and_last_word(run: Any) -> None:
    """Before the steps that N steps come and no model; at the end that export was skipped; and nothing else."""
    lines, wanted = run.result["lines"], run.arguments["steps"]
    about = [line for line in lines if line.startswith("smoke mode:")]
    assert len(about) == 2 and lines[-1:] == about[1:], f"{about} of {len(lines)} lines: {_said(run)}"
    assert f" {wanted} steps" in about[0] and "no model will be written" in about[0], f"{about[0]!r} for N = {wanted}"
    assert "export skipped" in about[1], f"{about[1]!r} doesn't say that export was skipped"
    first_epoch = next(place for place, line in enumerate(lines) if line.startswith("Epoch "))
    assert lines.index(about[0]) < first_epoch, f"{about[0]!r} comes after the first epoch"
    assert run.result["complaints"] == [], f"on standard error: {run.result['complaints']}"


def falsify_refused_before_anything_is_loaded(run: Any) -> None:
    """Exit code 2 and one line that names origin, value and what is allowed; no torch, and no file."""
    for said in run.result:
        case = f"{said['origin']} = {said['value']}: exit {said['exit_code']}, {said['complaints']}"
        assert said["exit_code"] == 2, f"{case}; expected 2"
        assert len(said["complaints"]) == 1, f"{case}; expected one line"
        for part in (f"error: {said['origin']} is ", said["value"], "expected a positive decimal integer"):
            assert part in said["complaints"][0], f"{case}; expected {part!r} in it"
        assert said["lines"] == [], f"{case}; it printed {said['lines']}"
        assert "click" in said["imported"], f"{case}; nothing tells what it imported"
        assert "torch" not in said["imported"], f"{case}; torch was imported before it was refused"
        changed = changes(said["before"], said["after"])
        assert not changed, f"{case}; it changed {changed}"
