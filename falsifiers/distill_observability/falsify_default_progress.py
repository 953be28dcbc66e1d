"""Attacks on whole runs, from the command line and from the library: they log their progress by default.

The subject is `reference_trainer.cli` with its command `main`, or has `distill` as `pipeline.distill` does.
"""

from __future__ import annotations

import io
import json
import os
import signal
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from falsifiers.support.run_lines import ATTACHED, EPOCH, STEP, matcher, start
from reference_trainer.config.settings import Settings
from reference_trainer.training.callbacks import Callback

# 480 bytes: 432 to train on, so 28 sequences of 16 that share their ends, so 7 batches of 4; 3 epochs are 21 steps.
TEXT = b"It was the best of times, it was the worst of times, it was the age of wisdom. " * 6 + b"x" * 6
PER_EPOCH, EPOCHS = 7, 3
SMALL = {"layers": 1, "width": 16, "teacher_layers": 1, "teacher_width": 16, "length": 16, "batch_size": 4}
SMALL |= {"teacher_steps": 2, "epochs": EPOCHS}
PREFIXES = ("REFERENCE_TRAINER_", "APR_DISTILL_")


def _files(directory: Path) -> dict[str, Path]:
    (directory / "text").write_bytes(TEXT)
    names = {"data": "text", "teacher_cache": "teachers", "out": "out", "trace": "trace"}
    return {name: directory / file for name, file in names.items()}


def _command(subject: Any, environment: dict[str, str]) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the output lines and the trace of a small run with no other settings in the environment than these."""
    others: dict[str, str | None] = {name: None for name in os.environ if name.startswith(PREFIXES)}
    before = signal.getsignal(signal.SIGTERM)
    try:
        with tempfile.TemporaryDirectory() as directory:
            given = SMALL | {"device": "cpu"} | _files(Path(directory))
            flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
            done = CliRunner().invoke(subject.main, ["distill", *flags], env=others | environment)
            assert done.exit_code == 0, f"with {environment} the command ended with {done.exit_code}: {done.output}"
            trace = [json.loads(line) for line in (Path(directory) / "trace").read_text().splitlines()]
            return done.stdout.splitlines(), trace
    finally:
        signal.signal(signal.SIGTERM, before)


def _assert_lines(seen: list[str], trace: list[dict[str, Any]], every: int) -> None:
    """Assert the attachment line first, then one line per due step and per epoch with the numbers of its event."""
    total = PER_EPOCH * EPOCHS
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
    _assert_lines(*_command(subject, {}), 10)


def falsify_interval_of_one_logs_every_step(subject: Any) -> None:
    _assert_lines(*_command(subject, {"APR_DISTILL_LOG_EVERY": "1"}), 1)


def falsify_interval_of_zero_logs_epochs_only(subject: Any) -> None:
    _assert_lines(*_command(subject, {"APR_DISTILL_LOG_EVERY": "0"}), 0)


def falsify_user_callbacks_are_called_after_progress(subject: Any) -> None:
    stream, called = io.StringIO(), list[tuple[int, list[str]]]()

    class LastLine(Callback):
        def on_step_end(self, context: Any) -> None:
            called.append((context.step, stream.getvalue().splitlines()[-2:]))

    with tempfile.TemporaryDirectory() as directory:
        settings = SMALL | _files(Path(directory)) | {"device": "cpu", "log_every": 2, "max_steps": 6, "warmup": 0}
        with redirect_stdout(stream):  # where the lines go by default
            subject.distill(Settings(**settings), callbacks=[LastLine()])
    lines = stream.getvalue().splitlines()
    assert ATTACHED.format(every=2) in lines, f"no attachment line: {lines}"
    assert [step for step, _ in called] == [1, 2, 3, 4, 5, 6], f"the user's callback was called for {called}"
    for step, last in called:
        written = [line for line in last if matcher(STEP, step=step, total=6).fullmatch(line)]
        assert step % 2 or written, f"at step {step} the last lines are {last}; expected the line of that step"
