"""Attacks on whole runs, from the command line and from the library: they show what they do unless told otherwise.

The subject is `reference_trainer.cli` with its command `main`, or has `distill`, `Settings`, `Lines` and `Callback` as
`reference_trainer.distill` does, or is that of `falsifiers.lifecycle`.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from torch.utils._python_dispatch import TorchDispatchMode

from falsifiers.falsify_progress import EPOCH, STEP, Stream
from falsifiers.lifecycle import Script, parts, run

# 480 bytes: 432 to learn from, so 28 sequences of 16 that share their ends, so 7 batches of 4; 3 epochs are 21 steps.
TEXT = b"It was the best of times, it was the worst of times, it was the age of wisdom. " * 6 + b"x" * 6
PER_EPOCH, EPOCHS = 7, 3
SMALL = {"layers": 1, "width": 16, "teacher_layers": 1, "teacher_width": 16, "length": 16, "batch_size": 4}
SMALL |= {"teacher_steps": 2, "epochs": EPOCHS}
OURS = ("REFERENCE_TRAINER_", "APR_DISTILL_")


def _files(directory: Path) -> dict[str, Path]:
    (directory / "text").write_bytes(TEXT)
    names = {"data": "text", "teacher_cache": "teachers", "out": "out", "trace": "trace"}
    return {name: directory / file for name, file in names.items()}


def _command(subject: Any, environment: dict[str, str]) -> tuple[list[str], list[dict[str, Any]]]:
    """Lines on standard output of a small run with these variables and no others of ours, and its trace."""
    others: dict[str, str | None] = {name: None for name in os.environ if name.startswith(OURS)}
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
    """The attachment first; each due step and each epoch with the numbers of its event; no other line that has one."""
    attached = f"ProgressCallback attached (log every {every} steps; 0 for epoch lines only)"
    total = PER_EPOCH * EPOCHS
    expected = [attached]
    for event in trace:
        if event["event"] == "on_step_end" and every and event["step"] % every == 0:
            expected.append(f"  Step {event['step']}/{total}: loss: {event['loss']:.4f}")
        if event["event"] == "on_epoch_end":
            expected.append(f"Epoch {event['epoch']}/{EPOCHS}: loss: {event['loss']:.4f}")
    steps = sum(event["event"] == "on_step_end" for event in trace)
    assert steps == total, f"the run took {steps} steps; expected {total}"
    shown = [line for line in seen if "attached" in line or STEP.match(line) or EPOCH.match(line)]
    assert [line.partition(" (" if line[0] == "E" else "\n")[0] for line in shown] == expected, (
        f"a run of {total} steps, logged every {every}, shows {shown}; expected {expected}"
    )


def falsify_default_run_shows_its_loss(subject: Any) -> None:
    """Nothing set: the callback says that it is there, and every tenth step and every epoch has its line."""
    _assert_lines(*_command(subject, {}), 10)


def falsify_every_step_is_shown(subject: Any) -> None:
    """APR_DISTILL_LOG_EVERY=1: a line for each step."""
    _assert_lines(*_command(subject, {"APR_DISTILL_LOG_EVERY": "1"}), 1)


def falsify_steps_can_be_silenced(subject: Any) -> None:
    """APR_DISTILL_LOG_EVERY=0: no line for a step, one for each epoch."""
    _assert_lines(*_command(subject, {"APR_DISTILL_LOG_EVERY": "0"}), 0)


def falsify_own_callbacks_come_after(subject: Any) -> None:
    """The library attaches it too, first: when a user's callback hears of a step, its line is there already."""
    stream, heard = Stream(), list[tuple[int, str]]()

    class Listening(subject.Callback):
        def on_step_end(self, context: Any) -> None:
            heard.append((context.step, stream.getvalue().splitlines()[-1]))

    with tempfile.TemporaryDirectory() as directory:
        settings = SMALL | _files(Path(directory)) | {"device": "cpu", "log_every": 2, "max_steps": 6, "warmup": 0}
        subject.distill(subject.Settings(**settings), callbacks=[Listening()], lines=subject.Lines(stream))
    lines = stream.getvalue().splitlines()
    assert any("ProgressCallback attached (log every 2 steps" in line for line in lines), f"nobody says so: {lines}"
    assert [step for step, _ in heard] == [1, 2, 3, 4, 5, 6], f"the user's callback heard of {heard}"
    for step, last in heard:
        assert step % 2 or last.startswith(f"  Step {step}/6: "), f"at step {step} the last line is {last!r}"


class Operations(TorchDispatchMode):
    """Counts what torch is asked to do: reading a number off a device is one of these operations."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


def _operations(subject: Any, device: str, callbacks: list[Any]) -> list[str]:
    """Of a run of six steps, in their order."""
    given = parts(subject, device)
    with Operations() as operations:
        run(subject, Script(2, 3, None, ()), callbacks, given)
    return operations.seen


def falsify_nothing_is_computed_for_callbacks(subject: Any, device: str) -> None:
    """A run dispatches the same operations, reads of the device among them, with a ProgressCallback as without any."""
    progress = importlib.import_module("reference_trainer.progress")
    plain = _operations(subject, device, [])
    assert any("_local_scalar_dense" in name for name in plain), f"no step's loss was read: {sorted(set(plain))}"
    for every in (0, 1, 4):
        seen = _operations(subject, device, [progress.ProgressCallback(every, lines=progress.Lines(Stream()))])
        more = {name: seen.count(name) - plain.count(name) for name in {*seen, *plain}}
        more = {name: count for name, count in more.items() if count}
        assert seen == plain, f"with a ProgressCallback({every}) six steps need other operations, by number: {more}"
