"""Attacks on smoke runs and on limits of steps: a run by the command line, its beginning, its lines and its files."""

import itertools
import math
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.distill_smoke import cases
from falsifiers.distill_smoke.cases import changes, distilled, finished, invoked, place, planned, steps_of
from falsifiers.support.assertions import assert_equal
from falsifiers.support.oracles import assert_refused
from falsifiers.support.run_lines import SMOKE_OUTPUT, SMOKE_PROJECTION, SMOKE_SUMMARY, matcher
from falsifiers.support.run_record import RunRecord
from falsifiers.support.runs import acting
from reference_trainer import Action
from reference_trainer.storage.checkpoints import saved_steps

SUMMARY, PROJECTION = matcher(SMOKE_SUMMARY), matcher(SMOKE_PROJECTION, steps=50000)
COUNTS = st.integers(1, 12)
EPOCH_EVENTS = ("on_epoch_begin", "on_epoch_end")
WRITTEN = ["config.json", "manifest.json", "model.safetensors"]


def smoke_by_command_line(
    subject: Any,
    *,
    device: str,
    directory: Path,
    trace: Callable[[dict[str, Any]], None],
    steps: int,
    epochs: int,
    batch_size: int,
) -> dict[str, Any]:
    """Run `distill` with APR_DISTILL_MAX_STEPS and a trace, in an empty working directory with the default output.

    Return exit code and output, and every path before and after the run.
    """
    with place(directory) as where:
        due = {"log_every": 1, "eval_every": 3, "save_every": 2}  # a full run writes files at each
        flags = where.flags(out=None, teacher_cache=None, device=device, epochs=epochs, batch_size=batch_size, **due)
        before = where.listing()
        with chdir(where.work):
            ended = invoked(subject, where, *flags, "--trace", "trace.jsonl", APR_DISTILL_MAX_STEPS=str(steps))
        for event in cases.read_trace(where.work / "trace.jsonl"):
            trace(event)
        # Libraries may warn on standard error, as PyTorch does on some GPUs.
        complaints = [line for line in ended.stderr.splitlines() if line.startswith(("error:", "Traceback"))]
        printed = {"lines": ended.stdout.splitlines(), "complaints": complaints}
        return printed | {"exit_code": ended.exit_code, "before": before, "after": where.listing()}


def _assert_steps(events: Any, steps: int, batch_size: int) -> None:
    """Assert that a trace has these steps, and that every epoch that they begin is closed."""
    assert_equal("steps of the trace", [event["step"] for event in steps_of(events)], list(range(1, steps + 1)))
    for hook in EPOCH_EVENTS:
        count = sum(event["event"] == hook for event in events)
        assert_equal(f"calls of {hook} in {steps} steps", count, -(-steps // cases.steps_per_epoch(batch_size)))


def falsify_requested_steps_run(run: RunRecord) -> None:
    printed = f"{run.result['lines'][-12:]}, {run.result['complaints']}"
    assert run.result["exit_code"] == 0 and not run.result["complaints"], f"the run failed: {printed}"
    _assert_steps(run.trace, run.arguments["steps"], run.arguments["batch_size"])
    assert_equal("the last event", run.trace[-1]["event"], "on_train_end")
    reported = [match["steps"] for line in run.result["lines"] if (match := SUMMARY.fullmatch(line))]
    assert_equal("steps of the summaries", reported, [str(run.arguments["steps"])])


def falsify_two_lines_report_correct_numbers(run: RunRecord) -> None:
    """F-REPORT-LINES-002 has the arithmetic of the projection, which depends on no other number of the run."""
    lines = [line for line in run.result["lines"] if "[SMOKE]" in line]
    assert_equal(f"lines with [SMOKE] in {run.result['lines'][-9:]}", len(lines), 2)
    first, second = SUMMARY.fullmatch(lines[0]), PROJECTION.fullmatch(lines[1])
    assert first and second, f"{lines} do not have the documented format"
    losses = [event["loss"] for event in steps_of(run.trace)]
    expected = f"{losses[0]:.4f}", f"{losses[-1]:.4f}"
    assert_equal("first and last loss", (first["initial_loss"], first["final_loss"]), expected)
    elapsed, steps = float(first["elapsed_s"]), len(losses)
    # A busy machine may take its time between the last event and the line.
    late = elapsed - run.trace[-1]["elapsed_s"]
    assert -0.006 <= late <= 5, f"{lines[0]!r}: its time is {late} s after the last event of the trace"
    # The time is rounded to hundredths, and so are throughput and projection.
    fast, slow = steps / max(elapsed - 0.005, 1e-9) + 0.006, steps / (elapsed + 0.005) - 0.006
    assert slow <= float(first["throughput"]) <= fast, f"{lines[0]!r}: expected {slow} to {fast} steps a second"
    least, most = (50000 / steps * (elapsed + sign * 0.005) + sign * 0.06 for sign in (-1, 1))
    assert least <= float(second["seconds"]) <= most, f"{lines[1]!r}: expected {least} to {most} s"


def falsify_only_the_trace_is_written(run: RunRecord) -> None:
    assert run.trace, f"no trace was written: {run.result['lines'][-12:]}, {run.result['complaints']}"
    assert_equal("changed files", changes(run.result["before"], run.result["after"]), ["work/trace.jsonl"])


@given(
    n=COUNTS, epochs=st.integers(1, 3), batch_size=st.sampled_from([4, 10, 3, 2]), stop=st.none() | st.integers(1, 12)
)
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
    steps = min(n, planned(batch_size=batch_size, epochs=epochs), stop or n)
    _assert_steps(ran.events, steps, batch_size)
    result = ran.result.train.steps_completed, ran.result.output, ran.result.held_back
    assert_equal("steps, output and held-back metrics", result, (steps, None, {}))
    assert_equal(f"steps of the summaries in {ran.lines}", ran.reported_steps(), [str(steps)])
    both = [PROJECTION.fullmatch(line) is not None for line in ran.starting_with("[SMOKE]")]
    assert both == [False, True], f"expected the summary, then the projection, once each: {ran.lines}"


@given(n=COUNTS, is_file=st.booleans())
def falsify_full_output_directory_is_no_error(subject: Any, device: str, n: int, is_file: bool) -> None:
    with place() as where:
        if not is_file:
            where.out.mkdir()
        (where.out if is_file else where.out / "a").touch()
        before = where.listing()
        smoke, full = (distilled(subject, where, traced=False, device=device, smoke=steps) for steps in (n, None))
        changed = changes(before, where.listing())
    assert full.error is not None, "a full run into an output that is taken is accepted; expected a refusal"
    assert smoke.error is None and not changed, f"a smoke run: error {smoke.error!r}, changed files {changed}"
    assert_equal(f"steps of the summaries in {smoke.lines}", smoke.reported_steps(), [str(min(n, planned()))])
    assert_equal("lines with the refusal", smoke.lines.count(SMOKE_OUTPUT.format(error=full.error)), 1)


def _losses_without_smoke(subject: Any, where: cases.Place, device: str, name: str, **variables: str) -> list[float]:
    trace, out = where.root / f"{name}.jsonl", where.tree / name
    ended = invoked(subject, where, *where.flags(epochs=2, trace=trace, out=out, device=device), **variables)
    assert ended.exit_code == 0, f"with {variables}: exit {ended.exit_code}, {ended.output}"
    assert "smoke" not in ended.output.lower(), f"a run that is not a smoke run mentions smoke mode: {ended.output}"
    assert_equal(f"files with {variables}", sorted(path.name for path in out.iterdir()), WRITTEN)
    losses = [event["loss"] for event in steps_of(cases.read_trace(trace))]
    assert_equal(f"steps with {variables}", len(losses), planned(epochs=2))
    return losses


def _assert_losses(case: str, device: str, seen: list[float], expected: list[float]) -> None:
    """Assert that two runs have the same losses; on a GPU within 1 %, as it adds gradients in no fixed order."""
    allowed = 0.0 if device == "cpu" else 0.01
    same = len(seen) == len(expected) and all(
        math.isclose(x, y, rel_tol=allowed, abs_tol=0.0) for x, y in zip(seen, expected, strict=True)
    )
    assert same, f"{case} the losses are {seen}; the other run has {expected}; allowed is {allowed:.0%}"


def falsify_unset_limit_gives_a_full_run(subject: Any, device: str) -> None:
    with place() as where:
        usual = _losses_without_smoke(subject, where, device, "unset")
        empty = {"APR_DISTILL_MAX_STEPS": "", "REFERENCE_TRAINER_SMOKE": ""}
        losses = _losses_without_smoke(subject, where, device, "empty", **empty)
    _assert_losses("with empty variables", device, losses, usual)


@given(n=COUNTS, seed=st.integers(0, 3), warmup=st.sampled_from([50, 0, 5]))
@example(n=6, seed=0, warmup=2)
def falsify_losses_equal_the_first_of_the_full_run(subject: Any, device: str, n: int, seed: int, warmup: int) -> None:
    with place() as where:
        same = {"device": device, "seed": seed, "warmup": warmup, "epochs": 4, "teacher_steps": n}
        fresh = finished(subject, where, smoke=n, **same).losses
        full = finished(subject, where, **same).losses
        cached = finished(subject, where, smoke=n, out=where.tree / "other", **same).losses
    for teacher, losses in (("its own", fresh), ("the cached", cached)):
        _assert_losses(f"with {teacher} teacher", device, losses, full[:n])


@given(n=COUNTS, epochs=st.integers(1, 3))
def falsify_max_steps_ends_and_saves(subject: Any, device: str, n: int, epochs: int) -> None:
    with place() as where:
        ran = finished(subject, where, device=device, max_steps=n, epochs=epochs, save_every=5000)
        written = sorted(path.name for path in where.out.iterdir()) if where.out.exists() else []
        saved = saved_steps(where.out / "checkpoints", "student")
        assert_equal("the output of the result", ran.result.output, where.out)
    expected = min(n, planned(epochs=epochs))
    steps = ran.result.train.steps_completed, len(ran.losses)
    assert_equal(f"steps of result and trace with max_steps = {n}", steps, (expected, expected))
    assert_equal("files", written, sorted([*WRITTEN, "checkpoints"]))
    assert_equal("steps with a checkpoint", saved, [expected])
    assert not any("smoke" in line.lower() for line in ran.lines), f"lines mention smoke mode: {ran.lines}"


def falsify_schedules_need_positive_integers(subject: Any) -> None:
    usual = {"epochs": 2, "steps_per_epoch": 3, "limit": 4}
    for name, value in itertools.product(usual, (0, -1, 2.0, True, "2", None)):
        if (name, value) != ("limit", None):
            assert_refused(f"{name} = {value!r}", lambda k={**usual, name: value}: subject.Schedule(**k), name)
