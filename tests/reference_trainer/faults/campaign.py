"""Inject faults into a run of 30 steps, resume it under supervision, and check its end. One command for all of them:

    python -m tests.reference_trainer.faults.campaign [EVERY [WORD]]

With EVERY, only each EVERY-th fault is injected; with WORD, such as fsync, only those whose description has it. After
each, the weights' digest is that of the run without a fault, metrics.jsonl has every step once with equal values, and
every checkpoint that was there is whole, unless a later one has replaced it meanwhile.
"""

import errno
import hashlib
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from reference_trainer import Callback, Lines, read_metrics
from reference_trainer.cli import main as command
from reference_trainer.config.settings import Settings
from reference_trainer.pipeline.distill import distill
from reference_trainer.storage.checkpoint_files import read_checkpoint, saved_steps
from reference_trainer.supervision.decision import Ending, Verdict
from reference_trainer.supervision.until import Limits, until
from tests.reference_trainer.faults.operations import Operation, Watch
from tests.reference_trainer.forked import in_child

STEPS, EVERY, KEEP = 30, 5, 2
TINY: dict[str, Any] = {
    "layers": 1, "width": 16, "teacher_layers": 1, "teacher_width": 16, "teacher_steps": 2, "length": 8,
    "batch_size": 2, "accumulate": 2, "epochs": 3, "warmup": 3, "log_every": 1, "save_every": EVERY, "keep": KEEP,
    "device": "cpu",
}  # fmt: skip
TIMES = ("elapsed_s", "steps_per_s", "tokens_per_s", "flops_per_s")
RANK, MANIFEST = "rank-00000.safetensors", "manifest.json"


@dataclass
class Seen:
    """What a fault sees of the process in which it is injected: an operation, or the step that just ended."""

    out: Path
    operation: Operation | None = None
    step: int = 0

    def note(self) -> None:
        """Note which steps are saved just before the fault."""
        descriptor = os.open(self.out.with_name("before"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(descriptor, json.dumps(_steps(self.out)).encode())
        os.close(descriptor)


Fault = Callable[[Seen], None]
"""Called before every operation on a file of the output, and after every step."""


def nothing(seen: object) -> None:
    """No fault."""


def killed_before(number: int, seen: Seen) -> None:
    if seen.operation is not None and seen.operation.number == number:
        seen.note()
        os.kill(os.getpid(), signal.SIGKILL)


def killed_within(number: int, seen: Seen) -> None:
    """Write half of the bytes, then die."""
    if seen.operation is not None and seen.operation.number == number and seen.operation.half is not None:
        seen.note()
        seen.operation.half()
        os.kill(os.getpid(), signal.SIGKILL)


def killed_after(step: int, seen: Seen) -> None:
    if seen.step == step:
        seen.note()
        os.kill(os.getpid(), signal.SIGKILL)


FILLS = ("open", "write", "flush", "mkdir", "symlink")
"""Operations that need space."""


def _failed(number: int, hit: Callable[[Operation], bool], seen: Seen) -> None:
    if seen.operation is not None and hit(seen.operation):
        seen.note()
        raise OSError(number, os.strerror(number))


def full_from(number: int) -> Fault:
    """Let the disk be full from this operation on."""
    return partial(_failed, errno.ENOSPC, lambda each: each.number >= number and each.kind in FILLS)


def read_only_from(number: int) -> Fault:
    """Let the directory be read-only from this operation on; what is open can be written."""
    written = ("write", "flush", "fsync")
    return partial(_failed, errno.EROFS, lambda each: each.number >= number and each.kind not in written)


def failed_at(number: int) -> Fault:
    """Let this operation alone fail."""
    return partial(_failed, errno.EIO, lambda each: each.number == number)


def _newest(out: Path, name: str) -> Path:
    return out / "checkpoints" / f"student-step{_steps(out)[-1]}" / name


def _cut(name: str, share: float, out: Path) -> None:
    os.truncate(_newest(out, name), int(_newest(out, name).stat().st_size * share))


def _flip(name: str, share: float, out: Path) -> None:
    content = bytearray(_newest(out, name).read_bytes())
    content[int(len(content) * share)] ^= 1
    _newest(out, name).write_bytes(content)


def _remove(name: str, out: Path) -> None:
    _newest(out, name).unlink()


@dataclass
class Run:
    """A run in `folder` that is supervised to its end; the first attempt has the fault, and later ones none."""

    folder: Path
    fault: Fault = nothing
    between: Callable[[Path], object] = nothing  # after the first attempt
    said: list[str] = field(default_factory=list)
    before_fault: list[int] = field(default_factory=list)
    after_fault: list[int] = field(default_factory=list)
    attempts: int = 0

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def settings(self) -> Settings:
        shared = self.folder.parent
        return Settings(**{**TINY, "out": self.out, "data": shared / "text", "teacher_cache": shared / "cache"})

    def carried_out(self) -> Verdict:
        self.folder.mkdir()
        limits = Limits(step=STEPS, max_retries=9, max_idle=4, silent_s=60.0)
        given = self.settings()
        chosen = [(name, value) for name, value in given if name in given.model_fields_set]
        flags = [part for name, value in chosen for part in (f"--{name.replace('_', '-')}", str(value))]
        return until(given, flags, limits, launch=self._launch, report=self.said.append)

    def _launch(self, arguments: Sequence[str], beats: Path, name: str) -> tuple[Ending, str]:
        self.attempts += 1
        fault = self.fault if self.attempts == 1 else nothing
        code = in_child(partial(_attempt, list(arguments), self.out, fault))
        if self.attempts == 1:
            note = self.out.with_name("before")
            self.before_fault = json.loads(note.read_text()) if note.exists() else []
            self.after_fault = _steps(self.out)
            for step in self.after_fault:
                read_checkpoint(self.out / "checkpoints" / f"student-step{step}")
            self.between(self.out)
        return {0: Ending.FINISHED, 2: Ending.REFUSED}.get(code, Ending.FAILED), f"exit code {code}"


def _attempt(arguments: list[str], out: Path, fault: Fault) -> int:
    """Run the command in this process, and return its exit code."""
    Watch(out, lambda operation: fault(Seen(out, operation=operation))).begin()

    class Steps(Callback):
        def on_step_end(self, context: Any) -> None:
            fault(Seen(out, step=context.step))

    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as complaints:
        try:
            command(arguments, obj=partial(distill, callbacks=[Steps()]))
        except SystemExit as ended:
            if "Traceback" in complaints.getvalue():
                os.write(2, complaints.getvalue().encode())
            return int(ended.code or 0)
    return 0


def _steps(out: Path) -> list[int]:
    return saved_steps(out / "checkpoints", "student")


def end(out: Path) -> tuple[str, list[str]]:
    """Return the digest of the weights, and the lines of the metrics file without what depends on time."""
    read = [line.model_dump(exclude={"elapsed_s"}) for line in read_metrics(out / "metrics.jsonl")]
    for each in read:
        each["metrics"] = {name: value for name, value in each["metrics"].items() if name not in TIMES}
    lines = [json.dumps(each, sort_keys=True, default=str) for each in read]
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest(), lines


def straight(folder: Path) -> tuple[Path, list[tuple[str, str]]]:
    """Carry out the run without a fault; return its output and its operations.

    A run in this process comes first, so that forks have loaded what they import; it must have one thread.
    """
    torch.set_num_threads(1)
    (folder / "text").write_bytes(b"the quick brown fox jumps over the lazy dog. " * 12)
    record = folder / "record"

    def recorded(seen: Seen) -> None:
        if seen.operation is not None:
            descriptor = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(descriptor, (json.dumps([seen.operation.kind, seen.operation.path]) + "\n").encode())
            os.close(descriptor)

    run = Run(folder / "straight", recorded)
    distill(run.settings().model_copy(update={"out": folder / "warm"}), lines=Lines(io.StringIO()))
    assert run.carried_out() is Verdict.DONE, run.said
    return run.out, [(kind, path) for kind, path in map(json.loads, record.read_text().splitlines())]


Case = tuple[str, Fault, Callable[[Path], object]]
"""What happens, the fault of the first attempt, and what is done after it."""


def cases(operations: list[tuple[str, str]]) -> Iterator[Case]:
    """Yield every fault."""
    for number, (kind, path) in enumerate(operations, start=1):
        at = f"operation {number}, {kind} {path}"
        yield f"kill -9 before {at}", partial(killed_before, number), nothing
        if kind == "write":
            yield f"kill -9 within {at}", partial(killed_within, number), nothing
        if kind in FILLS:
            yield f"disk full from {at}", full_from(number), nothing
        yield f"read-only directory from {at}", read_only_from(number), nothing
        yield f"input/output error of {at}", failed_at(number), nothing
    for step in range(1, STEPS + 1):
        yield f"kill -9 after step {step}", partial(killed_after, step), nothing
    for name in (RANK, MANIFEST):  # of the newest checkpoint, so that the run resumes from the one before
        for share in (0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999):
            yield f"{name} truncated at {share}", partial(killed_after, 24), partial(_cut, name, share)
            yield f"{name} with a flipped bit at {share}", partial(killed_after, 24), partial(_flip, name, share)
        yield f"{name} missing", partial(killed_after, 24), partial(_remove, name)


def complaint(case: Case, expected: tuple[str, list[str]], folder: Path) -> str:
    """Inject a fault, resume the run to its end, and return what is wrong; empty if nothing is."""
    _, fault, between = case
    run = Run(folder, fault, between)
    try:
        ended = run.carried_out()
        newer = len([step for step in run.after_fault if step not in run.before_fault])
        kept = run.before_fault[max(len(run.before_fault) + newer - KEEP, 0) :]  # the others were rotated away
        if ended is not Verdict.DONE:
            return f"it ends with {ended.name}: {run.said}"
        if lost := [step for step in kept if step not in run.after_fault]:
            return f"the checkpoints {lost} are lost"
        left = [str(each) for each in run.out.rglob("*.partial")]
        return f"the weights or metrics.jsonl differ: {run.said}" if end(run.out) != expected else f"{left or ''}"
    except Exception as error:  # reported with the case, and the campaign goes on
        return f"{type(error).__name__}: {error}; {run.said}"
    finally:
        shutil.rmtree(folder)


def carried_out(every: int = 1, word: str = "") -> tuple[int, list[str]]:
    """Return how many faults were injected, and the complaints."""
    count, complaints = 0, list[str]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        out, operations = straight(folder)
        expected = end(out)
        for case in [case for case in cases(operations) if word in case[0]][::every]:
            count += 1
            if wrong := complaint(case, expected, folder / "case"):
                complaints.append(f"{case[0]}: {wrong}")
                print(complaints[-1], flush=True)
    return count, complaints


def main() -> None:
    started = time.monotonic()
    count, complaints = carried_out(int((*sys.argv[1:2], "1")[0]), *sys.argv[2:3])
    print(f"{count - len(complaints)} of {count} resumed to the same end, in {time.monotonic() - started:.0f} s")
    sys.exit(bool(complaints))


if __name__ == "__main__":
    main()
