"""Attacks on the log of a run: lines, intervals, formats, the cost of unlogged steps, and values for trackers."""

import io
import math
from contextlib import redirect_stdout
from string import Formatter
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.distill_smoke.cases import invoked, place, planned, read_trace, steps_of
from falsifiers.support import run_lines
from falsifiers.support.assertions import assert_equal
from falsifiers.support.run_lines import (
    ATTACHED,
    COMPILED_STEP,
    EPOCH,
    FIRST_STEP,
    METRICS_LINE,
    NEXT_STEP,
    STEP,
    matcher,
)
from falsifiers.support.runs import run, scratch, small
from reference_trainer import Callback, Context, Lines, Settings, read_metrics

Plan = tuple[int, int]
"""Number of epochs, and number of steps of an epoch."""
PLANS = st.tuples(st.integers(1, 3), st.integers(1, 9))
LOSSES = st.none() | st.floats(0, 1e6) | st.sampled_from([math.inf, math.nan])


def context(plan: Plan, step: int, loss: float | None, elapsed: float = 0.0, **values: Any) -> Context:
    epochs, per_epoch = plan
    totals = {"epochs": epochs, "steps_per_epoch": per_epoch, "total_steps": epochs * per_epoch}
    counters = {"step": step, "epoch": -(-step // per_epoch), "loss": loss, "best_loss": loss, "elapsed_s": elapsed}
    return Context(learning_rate=0.1, tokens=step, **totals, **counters, **values)


METRICS = {"none": {}, "nothing scored": {"temperature": 2.0}, "scored": {"temperature": 2.0, "loss": 0.25}}
"""Metrics of a logged step, by case."""


def _lines_of_run(
    subject: Any, plan: Plan, losses: list[float | None], metrics: str, every: int, **options: str
) -> list[str]:
    """Return the lines of a run whose steps take 0.75 s; step k has the loss k of the cyclically repeated list."""
    stream = io.StringIO()
    callback = subject.ProgressCallback(every, lines=Lines(stream), **options)
    now = context(plan, 0, None)
    callback.on_train_begin(now)
    for step in range(1, plan[0] * plan[1] + 1):
        now = context(plan, step, losses[step % len(losses)], 0.75 * step, metrics=METRICS[metrics])
        callback.on_step_end(now)
        if step % plan[1] == 0:
            callback.on_epoch_end(now)
    callback.on_train_end(now)
    return stream.getvalue().splitlines(keepends=True)


@given(
    plan=PLANS,
    losses=st.lists(LOSSES, min_size=1, max_size=4),
    every=st.integers(0, 12),
    metrics=st.sampled_from(sorted(METRICS)),
)
def falsify_log_lines(subject: Any, plan: Plan, losses: list[float | None], every: int, metrics: str) -> None:
    (epochs, per_epoch), total, expected = plan, plan[0] * plan[1], list[str]()
    if total > 1:
        left = total - 1
        expected.append(FIRST_STEP.format(seconds=0.75, left=left, duration=f"{0.75 * left:.0f} s"))
    for step in range(1, total + 1):
        loss = math.nan if (drawn := losses[step % len(losses)]) is None else drawn
        if every and not step % every:
            expected.append(STEP.format(step=step, total=total, loss=loss))
            expected += [METRICS_LINE.format(metrics="loss=0.25")] * (metrics == "scored")
        if step % per_epoch == 0:
            expected.append(EPOCH.format(epoch=step // per_epoch, epochs=epochs, loss=loss, elapsed_s=0.75 * step))
    lines = _lines_of_run(subject, plan, losses, metrics, every)
    assert_equal(f"lines, logged every {every}", lines, [f"{line}\n" for line in expected])


@given(plan=PLANS, every=st.integers(1, 4))
def falsify_titled_lines_differ_from_student_lines(subject: Any, plan: Plan, every: int) -> None:
    lines, steps = _lines_of_run(subject, plan, [1.0], "scored", every, title="teacher"), plan[0] * plan[1]
    count = steps // every + (steps > 1)
    assert len(lines) == count and all("teacher" in line for line in lines), (
        f"{steps} steps of a teacher, logged every {every}: {lines}; expected {count} lines with `teacher`"
    )
    student_lines = [line for line in lines if matcher(STEP).match(line) or matcher(EPOCH).match(line)]
    assert_equal("lines about a teacher in the format of the student", student_lines, [])


ESTIMATES = {0.5: (60, "30 s"), 1.2: (99, "119 s"), 1.5: (80, "2 min"), 7.0: (1028, "120 min"), 7.5: (960, "2.0 h")}
"""By seconds of a step: the number of remaining steps, and the printed estimate of their time."""


@given(
    seconds=st.sampled_from(sorted(ESTIMATES)),
    taken=st.integers(0, 50),
    earlier=st.sampled_from([0.0, 9.75, 3600.0]),
    compilation=st.none() | st.sampled_from([0.0, 90.0]),
)
@example(seconds=0.5, taken=0, earlier=0.0, compilation=90.0)
@example(seconds=0.5, taken=0, earlier=0.0, compilation=None)
def falsify_first_step_is_followed_by_an_estimate(
    subject: Any, seconds: float, taken: int, earlier: float, compilation: float | None
) -> None:
    """Check the line after the first step, or after the first two steps of a run that compiles.

    taken, earlier: number of steps before the run was resumed, and their seconds. compilation: seconds that compiling
    adds to the first step; None without compilation.
    """
    (remaining, words), stream, compiles = ESTIMATES[seconds], io.StringIO(), compilation is not None
    plan = (1, taken + 1 + compiles + remaining)
    callback = subject.ProgressCallback(0, lines=Lines(stream), compiles=compiles)
    callback.on_train_begin(context(plan, taken, None, earlier))
    for step in range(taken if taken else 1, taken + 4):  # a resumed run first repeats the end of the saved step
        elapsed = seconds * (step - taken) + (compilation or 0.0) * (step > taken)
        callback.on_step_end(context(plan, step, 1.0, earlier + elapsed))
    form, expected = (NEXT_STEP, COMPILED_STEP + "\n") if compiles else (FIRST_STEP, "")
    expected = expected.format(seconds=seconds + (compilation or 0.0))
    expected += form.format(seconds=seconds, left=remaining, duration=words) + "\n"
    assert_equal(f"output of the steps from {taken + 1} of {plan[1]} on", stream.getvalue(), expected)


class RecordingStream(io.StringIO):
    """A stream that records writes and flushes as events."""

    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self.events = events

    def write(self, text: str) -> int:
        self.events.append("written")
        return super().write(text)

    def flush(self) -> None:
        self.events.append("flushed")


class RecordingContext:
    """A context that records every read of an attribute, except the step, as an event."""

    def __init__(self, step: int, events: list[str]) -> None:
        self.step, self.__events = step, events

    def __getattr__(self, name: str) -> Any:
        self.__events.append(f"{name} was read")
        return {} if name == "metrics" else 1.0


@given(every=st.integers(0, 1000), times=st.integers(1, 1000), offset=st.integers(0, 2))
def falsify_unlogged_step_does_no_work(subject: Any, every: int, times: int, offset: int) -> None:
    events, step = list[str](), max(every, 1) * times + offset
    subject.ProgressCallback(every, lines=Lines(RecordingStream(events))).on_step_end(RecordingContext(step, events))
    if every and step % every == 0:
        assert {"flushed", "loss was read"} <= set(events), f"step {step}, logged every {every}: only {events}"
    else:
        assert not events, f"step {step}, logged every {every}: {events}; expected no event"


@given(
    name=st.sampled_from(["STEP_LINE", "EPOCH_LINE", "SMOKE_SUMMARY_LINE", "SMOKE_PROJECTION_LINE"]),
    count=st.integers(0, 10**9),
    real=st.floats(-1e9, 1e9) | st.sampled_from([math.nan, math.inf, -math.inf]),
)
def falsify_patterns_parse_their_lines(subject: Any, name: str, count: int, real: float) -> None:
    form, pattern = getattr(subject, name), subject.pattern(getattr(subject, name))
    fields = [(field, spec) for _, field, spec, _ in Formatter().parse(form) if field is not None]
    numbers = [format((real if spec else count) + place, spec or "") for place, (_, spec) in enumerate(fields)]
    line = run_lines.woven(form, numbers)
    match = pattern.fullmatch(line)
    assert match is not None, f"{pattern.pattern!r} does not match {line!r}"
    expected = {field: number for (field, _), number in zip(fields, numbers, strict=True)}
    assert_equal(f"numbers of {line!r}", match.groupdict(), expected)
    for changed in run_lines.changed(form, numbers):
        assert pattern.fullmatch(changed) is None, f"{pattern.pattern!r} matches the changed line {changed!r}"


LOGGED = ("loss", "hard_loss", "soft_loss", "kl_at_1", "student_perplexity", "teacher_perplexity")
EVALUATED = [f"eval/{name}" for name in ("hard_loss", "soft_loss", "kl_at_1", "student_perplexity", "agreement")]
VALUES = {2.34561: "2.346", 0.0: "0", 4.85165195e8: "4.852e+08", 1.25e-5: "1.25e-05", 17.0: "17"}
VALUES |= {math.nan: "nan", math.inf: "inf", -math.inf: "-inf"}


def _metrics(*names: str) -> st.SearchStrategy[dict[str, float]]:
    return st.dictionaries(st.sampled_from(names), st.sampled_from(list(VALUES)))


@given(metrics=_metrics(*LOGGED, "agreement", "total"))
@example(metrics=dict.fromkeys(reversed(LOGGED), 17.0))
@example(metrics={"agreement": 17.0})
def falsify_metrics_line(subject: Any, metrics: dict[str, float]) -> None:
    shown = " ".join(f"{name}={VALUES[metrics[name]]}" for name in LOGGED if name in metrics)
    expected = METRICS_LINE.format(metrics=shown) if shown else ""
    assert_equal(f"the line of {metrics}", subject.metrics_line(metrics), expected)


@given(step=st.integers(1, 99), metrics=_metrics(*EVALUATED, "eval/teacher_loss", "eval/kl_at_T"))
@example(step=3, metrics=dict.fromkeys(reversed(EVALUATED), 17.0))
def falsify_evaluation_line(subject: Any, step: int, metrics: dict[str, float]) -> None:
    names = [name for name in EVALUATED if name in metrics] + sorted(metrics.keys() - {*EVALUATED})
    shown = " ".join(f"{name}={VALUES[metrics[name]]}" for name in names)
    stream = io.StringIO()
    callback = subject.ProgressCallback(lines=Lines(stream))
    callback.on_evaluate(context((1, 99), step, 1.0, validation_metrics=metrics))
    expected = run_lines.EVALUATION.format(step=step, total=99, metrics=shown) + "\n" if shown else ""
    assert_equal(f"the line of {metrics}", stream.getvalue(), expected)


def _assert_command_logs(subject: Any, every: int, **variables: str) -> None:
    """Assert the attachment line, and then a line for every due step and every epoch, with the losses of the trace."""
    with place() as where:
        trace = where.root / "trace.jsonl"
        ended = invoked(subject, where, *where.flags(epochs=7, log_every=None, trace=trace), **variables)
        assert ended.exit_code == 0, f"with {variables}, the exit code is {ended.exit_code}: {ended.output}"
        events = read_trace(trace)
    total, expected = planned(epochs=7), [ATTACHED.format(every=every)]
    for event in events:
        if event["event"] == "on_step_end" and every and event["step"] % every == 0:
            expected.append(STEP.format(step=event["step"], total=total, loss=event["loss"]))
        if event["event"] == "on_epoch_end":
            expected.append(run_lines.start(EPOCH, epoch=event["epoch"], epochs=7, loss=event["loss"]))
    assert_equal("steps of the run", len(steps_of(events)), total)
    lines = [line for line in ended.stdout.splitlines() if any(matcher(f).match(line) for f in (ATTACHED, STEP, EPOCH))]
    # The trace does not have the printed time of an epoch, so the time is not compared.
    lines = [line[: match.start("elapsed_s")] if (match := matcher(EPOCH).fullmatch(line)) else line for line in lines]
    assert_equal(f"lines, logged every {every}", lines, expected)


def falsify_default_run_logs_its_loss(subject: Any) -> None:
    _assert_command_logs(subject, 10)


def falsify_interval_of_one_logs_every_step(subject: Any) -> None:
    _assert_command_logs(subject, 1, APR_DISTILL_LOG_EVERY="1")


def falsify_interval_of_zero_logs_epochs_only(subject: Any) -> None:
    _assert_command_logs(subject, 0, APR_DISTILL_LOG_EVERY="0")


def falsify_user_callbacks_are_called_after_progress(subject: Any) -> None:
    stream, called = io.StringIO(), list[tuple[int, list[str]]]()

    class LastLine(Callback):
        def on_step_end(self, context: Any) -> None:
            called.append((context.step, stream.getvalue().splitlines()[-2:]))

    with place() as where, redirect_stdout(stream):  # the default stream of the lines
        subject.distill(Settings(**where.settings(log_every=2, max_steps=6)), callbacks=[LastLine()])
    lines = stream.getvalue().splitlines()
    assert_equal(f"attachment lines in {lines}", lines.count(ATTACHED.format(every=2)), 1)
    assert_equal("steps at which the user's callback is called", [step for step, _ in called], [1, 2, 3, 4, 5, 6])
    for step, last in called:
        written = any(matcher(STEP, step=step, total=6).fullmatch(line) for line in last)
        assert step % 2 or written, f"at step {step} the last lines are {last}; expected the line of step {step}"


@given(log_every=st.integers(0, 3), eval_every=st.integers(0, 3), epochs=st.integers(1, 2))
@example(log_every=1, eval_every=2, epochs=1)
@example(log_every=2, eval_every=1, epochs=2)
def falsify_loggers_get_the_values_of_the_metrics_file(
    subject: Any, log_every: int, eval_every: int, epochs: int
) -> None:
    class Recorder(subject.Logger):
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[Any] = []

        def begin(self, context: Context) -> None:
            self.calls.append(("begin", self.settings))

        def write(self, values: Any, step: int) -> None:
            self.calls.append((step, dict(values)))

        def end(self) -> None:
            self.calls.append(("end", None))

    recorder, rank_1 = Recorder(), Recorder()
    with scratch() as directory:
        settings = small(directory, out=directory / "out", log_every=log_every, eval_every=eval_every, epochs=epochs)
        run(reference_trainer, settings, callbacks=[recorder])
        path = settings.run.out / "metrics.jsonl"
        lines = read_metrics(path) if path.exists() else []
    intervals = [every for every in (log_every, eval_every) if every]
    due = [step for step in range(1, 3 * epochs + 1) if any(step % every == 0 for every in intervals)]
    assert_equal("steps of metrics.jsonl", [line.step for line in lines], due)
    expected = [(line.step, {"learning_rate": line.learning_rate, **line.metrics}) for line in lines]
    case = f"logged every {log_every} and evaluated every {eval_every} steps"
    assert_equal(f"calls {case}", [name for name, _ in recorder.calls], ["begin", *due, "end"])
    assert_equal(f"settings {case}", recorder.calls[0][1], settings.json_values())
    for (step, seen), (_, values) in zip(recorder.calls[1:-1], expected, strict=True):
        assert_equal(f"values of step {step}, {case}", seen, values)
    other_rank = context((1, 1), 1, 1.0, metrics={"loss": 1.0}, rank=1, world_size=2)
    for hook in (rank_1.on_train_begin, rank_1.on_step_end, rank_1.on_train_end):
        hook(other_rank)
    assert_equal("calls of a logger on rank 1", rank_1.calls, [])
