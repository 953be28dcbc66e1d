"""Attacks on the formats of log lines and the patterns that parse them, and on the progress that whole runs log."""

import io
import math
from contextlib import redirect_stdout
from string import Formatter
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from falsifiers.distill_observability.falsify_progress_lines import context
from falsifiers.distill_smoke.cases import invoked, place, planned, read_trace
from falsifiers.support.run_lines import ATTACHED, EPOCH, EVALUATION, METRICS_LINE, STEP, changed, matcher, start, woven
from reference_trainer.callbacks.base import Callback
from reference_trainer.callbacks.progress import Lines
from reference_trainer.config.settings import Settings


@given(
    name=st.sampled_from(["STEP_LINE", "EPOCH_LINE", "SMOKE_SUMMARY_LINE", "SMOKE_PROJECTION_LINE"]),
    count=st.integers(0, 10**9),
    real=st.floats(-1e9, 1e9) | st.sampled_from([math.nan, math.inf, -math.inf]),
)
def falsify_patterns_parse_their_lines(subject: Any, name: str, count: int, real: float) -> None:
    form, pattern = getattr(subject, name), subject.pattern(getattr(subject, name))
    fields = [(field, spec) for _, field, spec, _ in Formatter().parse(form) if field is not None]
    numbers = [format((real if spec else count) + place, spec or "") for place, (_, spec) in enumerate(fields)]
    line = woven(form, numbers)
    match = pattern.fullmatch(line)
    assert match is not None, f"{pattern.pattern!r} does not match {line!r}"
    read, written = match.groupdict(), {field: number for (field, _), number in zip(fields, numbers, strict=True)}
    assert read == written, f"{line!r} was parsed as {read}; expected {written}"
    for wrong in changed(form, numbers):
        assert pattern.fullmatch(wrong) is None, f"{pattern.pattern!r} matches {wrong!r} too"


LOGGED = ("loss", "hard_loss", "soft_loss", "kl_at_1", "student_perplexity", "teacher_perplexity")
VALUES = {2.34561: "2.346", 0.0: "0", 4.85165195e8: "4.852e+08", 1.25e-5: "1.25e-05", 17.0: "17"}
VALUES |= {math.nan: "nan", math.inf: "inf", -math.inf: "-inf"}
METRICS = st.dictionaries(st.sampled_from([*LOGGED, "agreement", "total"]), st.sampled_from(list(VALUES)))


@given(metrics=METRICS)
@example(metrics=dict.fromkeys(reversed(LOGGED), 17.0))
@example(metrics={"agreement": 17.0})
def falsify_metrics_line(subject: Any, metrics: dict[str, float]) -> None:
    shown = [f"{name}={VALUES[metrics[name]]}" for name in LOGGED if name in metrics]
    expected = METRICS_LINE.format(metrics=" ".join(shown)) if shown else ""
    seen = subject.metrics_line(metrics)
    assert seen == expected, f"the line of {metrics} is {seen!r}; expected {expected!r}"


EVALUATED = [f"eval/{name}" for name in ("hard_loss", "soft_loss", "kl_at_1", "student_perplexity", "agreement")]
HELD_BACK = st.dictionaries(
    st.sampled_from([*EVALUATED, "eval/teacher_loss", "eval/kl_at_T"]), st.sampled_from(list(VALUES))
)


@given(step=st.integers(1, 99), metrics=HELD_BACK)
@example(step=3, metrics=dict.fromkeys(reversed(EVALUATED), 17.0))
def falsify_evaluation_line(subject: Any, step: int, metrics: dict[str, float]) -> None:
    names = [name for name in EVALUATED if name in metrics] + sorted(metrics.keys() - {*EVALUATED})
    shown = " ".join(f"{name}={VALUES[metrics[name]]}" for name in names)
    stream = io.StringIO()
    callback = subject.ProgressCallback(lines=Lines(stream))
    callback.on_evaluate(context((1, 99), step, 1.0, validation_metrics=metrics))
    expected = EVALUATION.format(step=step, total=99, metrics=shown) + "\n" if shown else ""
    assert stream.getvalue() == expected, f"the line is {stream.getvalue()!r}; expected {expected!r}"


EPOCHS = 7


def _assert_command(subject: Any, every: int, **variables: str) -> None:
    with place() as where:
        trace = where.root / "trace.jsonl"
        ended = invoked(subject, where, *where.flags(epochs=EPOCHS, log_every=None, trace=trace), **variables)
        assert ended.exit_code == 0, f"with {variables} the command ended with {ended.exit_code}: {ended.output}"
        _assert_lines(ended.stdout.splitlines(), read_trace(trace), every)


def _assert_lines(seen: list[str], trace: list[dict[str, Any]], every: int) -> None:
    """Assert the attachment line first, then one line per due step and per epoch with the numbers of its event."""
    total = planned(epochs=EPOCHS)
    expected = [ATTACHED.format(every=every)]
    for event in trace:
        if event["event"] == "on_step_end" and every and event["step"] % every == 0:
            expected.append(STEP.format(step=event["step"], total=total, loss=event["loss"]))
        if event["event"] == "on_epoch_end":
            expected.append(start(EPOCH, epoch=event["epoch"], epochs=EPOCHS, loss=event["loss"]))
    steps = sum(event["event"] == "on_step_end" for event in trace)
    assert steps == total, f"the run took {steps} steps; expected {total}"
    shown = [line for line in seen if any(matcher(form).match(line) for form in (ATTACHED, STEP, EPOCH))]
    epochs = [matcher(EPOCH).fullmatch(line) for line in shown]
    shown = [line[: epoch.start("elapsed_s")] if epoch else line for line, epoch in zip(shown, epochs, strict=True)]
    assert shown == expected, f"every {every} of {total}: {shown}; expected {expected}"


def falsify_default_run_logs_its_loss(subject: Any) -> None:
    _assert_command(subject, 10)


def falsify_interval_of_one_logs_every_step(subject: Any) -> None:
    _assert_command(subject, 1, APR_DISTILL_LOG_EVERY="1")


def falsify_interval_of_zero_logs_epochs_only(subject: Any) -> None:
    _assert_command(subject, 0, APR_DISTILL_LOG_EVERY="0")


def falsify_user_callbacks_are_called_after_progress(subject: Any) -> None:
    stream, called = io.StringIO(), list[tuple[int, list[str]]]()

    class LastLine(Callback):
        def on_step_end(self, context: Any) -> None:
            called.append((context.step, stream.getvalue().splitlines()[-2:]))

    with place() as where, redirect_stdout(stream):  # where the lines go by default
        subject.distill(Settings(**where.settings(log_every=2, max_steps=6)), callbacks=[LastLine()])
    lines = stream.getvalue().splitlines()
    assert ATTACHED.format(every=2) in lines, f"no attachment line: {lines}"
    assert [step for step, _ in called] == [1, 2, 3, 4, 5, 6], f"the user's callback was called for {called}"
    for step, last in called:
        written = [line for line in last if matcher(STEP, step=step, total=6).fullmatch(line)]
        assert step % 2 or written, f"at step {step} the last lines are {last}; expected the line of that step"
