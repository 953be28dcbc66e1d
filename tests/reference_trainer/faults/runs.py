"""A supervised run of 30 steps in forked processes, in which faults are injected, and what is found of it."""

import errno
import hashlib
import io
import json
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from reference_trainer import Callback, Lines, read_metrics
from reference_trainer.cli import main
from reference_trainer.config.settings import Settings
from reference_trainer.pipeline.distill import distill
from reference_trainer.storage.checkpoint_files import read_checkpoint, saved_steps
from reference_trainer.supervision.decision import Ending, Verdict
from reference_trainer.supervision.until import Limits, until
from tests.reference_trainer.faults.operations import Operation, Watch
from tests.reference_trainer.forked import in_child

STEPS, EVERY, KEEP = 30, 5, 2
TINY = {
    "layers": 1,
    "width": 16,
    "teacher_layers": 1,
    "teacher_width": 16,
    "teacher_steps": 2,
    "length": 8,
    "batch_size": 2,
    "accumulate": 2,
    "epochs": 3,
    "warmup": 3,
    "log_every": 1,
    "save_every": EVERY,
    "keep": KEEP,
    "device": "cpu",
}
TIMES = ("elapsed_s", "steps_per_s", "tokens_per_s", "flops_per_s")


@dataclass
class Seen:
    """What a fault sees of the process in which it is injected: an operation, or the step.

    taken: the step whose update has just been taken. step: the one that just ended.
    """

    out: Path
    operation: Operation | None = None
    taken: int = 0
    step: int = 0

    def note(self) -> None:
        """Note which steps are saved just before the fault."""
        descriptor = os.open(self.out.with_name("before"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(descriptor, json.dumps(saved_steps(self.out / "checkpoints", "student")).encode())
        os.close(descriptor)


Fault = Callable[[Seen], None]
"""Called before every operation on a file of the output, and after every step."""


def nothing(seen: Seen) -> None:
    """No fault."""


def kill(seen: Seen) -> None:
    seen.note()
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Run:
    """A run in `folder` that is supervised to its end; attempt k has the fault `faults[k]`, and later ones none."""

    folder: Path
    faults: Sequence[Fault] = ()
    between: Callable[[Path], object] = nothing  # after the first attempt
    out: Path = field(init=False)
    said: list[str] = field(default_factory=list)
    before_fault: list[int] = field(default_factory=list)
    after_fault: list[int] = field(default_factory=list)
    attempts: int = 0

    def __post_init__(self) -> None:
        self.out = self.folder / "out"

    def settings(self) -> Settings:
        shared = self.folder.parent
        return Settings(**{**TINY, "out": self.out, "data": shared / "text", "teacher_cache": shared / "cache"})

    def carried_out(self, retries: int = 9) -> Verdict:
        limits = Limits(step=STEPS, max_retries=retries, max_idle=4, silent_s=60.0)
        given = self.settings()
        flags = [part for name, value in given if name in given.model_fields_set for part in _flag(name, value)]
        return until(given, flags, limits, launch=self._launch, report=self.said.append)

    def _launch(self, arguments: Sequence[str], beats: Path, name: str) -> tuple[Ending, str]:
        fault = self.faults[self.attempts] if self.attempts < len(self.faults) else nothing
        self.attempts += 1
        code = in_child(partial(_attempt, list(arguments), self.out, fault))
        if self.attempts == 1:
            note = self.out.with_name("before")
            self.before_fault = json.loads(note.read_text()) if note.exists() else []
            self.after_fault = whole(self.out)
            self.between(self.out)
        ending = {0: Ending.FINISHED, 2: Ending.REFUSED}.get(code, Ending.FAILED)
        return ending, f"exit code {code}"


def _flag(name: str, value: Any) -> list[str]:
    return [f"--{name.replace('_', '-')}", str(value)]


def _attempt(arguments: list[str], out: Path, fault: Fault) -> int:
    """Run the command in this process, and return its exit code."""
    Watch(out, lambda operation: fault(Seen(out, operation=operation))).begin()

    class Steps(Callback):
        def on_optimizer_step(self, context: Any) -> None:
            fault(Seen(out, taken=context.step))

        def on_step_end(self, context: Any) -> None:
            fault(Seen(out, step=context.step))

    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as complaints:
        try:
            main(arguments, obj=partial(distill, callbacks=[Steps()]))
        except SystemExit as ended:
            text = complaints.getvalue()
            if "Traceback" in text:
                os.write(2, text.encode())
            return int(ended.code or 0)
    return 0


def whole(out: Path) -> list[int]:
    """Return the saved steps. Raise `CheckpointError` if one of them is not whole."""
    steps = saved_steps(out / "checkpoints", "student")
    for step in steps:
        read_checkpoint(out / "checkpoints" / f"student-step{step}")
    return steps


def digest(out: Path) -> str:
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()


def lines(out: Path) -> list[str]:
    """Return the lines of the metrics file, without what depends on time."""
    read = [line.model_dump(exclude={"elapsed_s"}) for line in read_metrics(out / "metrics.jsonl")]
    for each in read:
        each["metrics"] = {name: value for name, value in each["metrics"].items() if name not in TIMES}
    return [json.dumps(each, sort_keys=True, default=str) for each in read]


@dataclass(frozen=True)
class Straight:
    """The run without a fault: its end, and its operations with the steps that were saved before each."""

    digest: str
    lines: list[str]
    operations: list[tuple[str, str]]
    saved: list[list[int]]


def straight(folder: Path) -> Straight:
    """Carry out the run without a fault: for its end, and to record its operations.

    A run in this process comes first, so that forks have loaded what they import; it must have one thread.
    """
    torch.set_num_threads(1)
    text = b"the quick brown fox jumps over the lazy dog. "
    (folder / "text").write_bytes(text * 12)
    first = Run(folder / "straight")
    first.folder.mkdir()
    warm = first.settings().model_copy(update={"out": folder / "warm"})
    distill(warm, lines=Lines(io.StringIO()))
    assert first.carried_out() is Verdict.DONE, first.said
    record = folder / "record"
    second = Run(folder / "recorded", [partial(_record, record, folder / "recorded" / "out")])
    second.folder.mkdir()
    assert second.carried_out() is Verdict.DONE, second.said
    read = [json.loads(line) for line in record.read_text().splitlines()]
    assert digest(second.out) == digest(first.out)
    return Straight(
        digest=digest(first.out),
        lines=lines(first.out),
        operations=[(kind, path) for kind, path, _ in read],
        saved=[saved for _, _, saved in read],
    )


def _record(record: Path, out: Path, seen: Seen) -> None:
    if seen.operation is not None:
        saved = saved_steps(out / "checkpoints", "student")
        line = json.dumps([seen.operation.kind, seen.operation.path, saved]) + "\n"
        descriptor = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, line.encode())
        os.close(descriptor)


# Faults.


def killed_before(number: int, seen: Seen) -> None:
    if seen.operation is not None and seen.operation.number == number:
        kill(seen)


def killed_within(number: int, seen: Seen) -> None:
    """Write half of the bytes, then die."""
    if seen.operation is not None and seen.operation.number == number and seen.operation.half is not None:
        seen.note()
        seen.operation.half()
        os.kill(os.getpid(), signal.SIGKILL)


def killed_after(step: int, seen: Seen) -> None:
    if seen.step == step:
        kill(seen)


def interrupted_in(step: int, number: int, seen: Seen) -> None:
    if seen.taken == step:
        os.kill(os.getpid(), number)


FILLS = ("open", "write", "flush", "mkdir", "symlink")
"""Operations that need space."""


def full_from(number: int, seen: Seen) -> None:
    """Let the disk be full from this operation on."""
    _failed(seen, errno.ENOSPC, lambda each: each.number >= number and each.kind in FILLS)


def read_only_from(number: int, seen: Seen) -> None:
    """Let the directory be read-only from this operation on; what is open can be written."""
    _failed(seen, errno.EROFS, lambda each: each.number >= number and each.kind not in ("write", "flush", "fsync"))


def failed_at(number: int, seen: Seen) -> None:
    """Let this operation alone fail."""
    _failed(seen, errno.EIO, lambda each: each.number == number)


def _failed(seen: Seen, number: int, hit: Callable[[Operation], bool]) -> None:
    if seen.operation is not None and hit(seen.operation):
        seen.note()
        raise OSError(number, os.strerror(number))
