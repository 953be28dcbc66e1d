"""Attacks on whole runs, from the command line and from the library: they log their progress by default.

The subject is `reference_trainer.cli` with its command `main`, or has `distill` as `pipeline.distill` does.
"""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import Any

from falsifiers.distill_smoke.cases import invoked, place, planned, read_trace
from falsifiers.support.run_lines import ATTACHED, EPOCH, STEP, matcher, start
from reference_trainer.callbacks.base import Callback
from reference_trainer.config.settings import Settings

EPOCHS = 7


def _assert_command(subject: Any, every: int, **variables: str) -> None:
    """Run the command, and check its lines."""
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
    assert list(map(_without_time, shown)) == expected, (
        f"a run of {total} steps, logged every {every}, logs {shown}; expected {expected}"
    )


def _without_time(line: str) -> str:
    """Return a line, that of an epoch up to its seconds."""
    found = matcher(EPOCH).fullmatch(line)
    return line[: found.start("elapsed_s")] if found else line


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
