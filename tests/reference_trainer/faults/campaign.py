"""Inject faults into a run of 30 steps, resume it under supervision, and check its end. One command for all of them:

    python -m tests.reference_trainer.faults.campaign [EVERY [WORD]]

With EVERY, only each EVERY-th fault is injected; with WORD, such as fsync, only those whose description has it. After
each, the weights' digest is that of the run without a fault, metrics.jsonl has every step once with equal values, and
every checkpoint that was there is whole.
"""

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reference_trainer.storage.checkpoint_files import saved_steps
from reference_trainer.supervision.decision import Verdict
from tests.reference_trainer.faults import runs
from tests.reference_trainer.faults.runs import EVERY, KEEP, STEPS, Fault, Run, Straight, nothing


@dataclass(frozen=True)
class Case:
    """A run with faults in its first attempts. saved: the steps that must be there after the first of them, if known.

    Every checkpoint that was there before a fault is whole after it, unless a later one has replaced it meanwhile.
    """

    kind: str
    what: str
    faults: tuple[Fault, ...]
    saved: list[int] | None = None
    between: Callable[[Path], object] = nothing


def cases(straight: Straight) -> Iterator[Case]:
    """Yield every fault."""
    yield from _at_operations(straight)
    yield from _at_steps()
    yield from _in_files()
    yield from _again_and_again(straight)


def _at_operations(straight: Straight) -> Iterator[Case]:
    for number, (kind, path) in enumerate(straight.operations, start=1):
        what = f"operation {number}, {kind} {path}"
        yield Case("kill -9 before an operation", what, (partial(runs.killed_before, number),))
        if kind == "write":
            yield Case("kill -9 within a write", what, (partial(runs.killed_within, number),))
        if kind in runs.FILLS:
            yield Case("disk full from an operation on", what, (partial(runs.full_from, number),))
        yield Case("read-only directory from an operation on", what, (partial(runs.read_only_from, number),))
        yield Case("input/output error of one operation", what, (partial(runs.failed_at, number),))


def _at_steps() -> Iterator[Case]:
    for step in range(1, STEPS + 1):
        yield Case("kill -9 after a step", f"step {step}", (partial(runs.killed_after, step),))
        for number in (signal.SIGTERM, signal.SIGINT):
            last = [*range(EVERY, step, EVERY), step][-KEEP:]
            fault = partial(runs.interrupted_in, step, number)
            yield Case(f"{number.name} in a step", f"step {step}", (fault,), last)


RANK, MANIFEST = "rank-00000.safetensors", "manifest.json"


def _in_files() -> Iterator[Case]:
    """Damage the newest checkpoint after a kill in step 24, so that the run resumes from the one before."""
    fault = partial(runs.killed_after, 24)
    for name in (RANK, MANIFEST):
        for share in (0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999):
            yield Case("truncated file", f"{name} at {share}", (fault,), None, partial(_cut, name, share))
        for share in (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95):
            yield Case("flipped bit", f"{name} at {share}", (fault,), None, partial(_flip, name, share))
        yield Case("missing file", name, (fault,), None, partial(_remove, name))


def _newest(out: Path, name: str) -> Path:
    return out / "checkpoints" / f"student-step{saved_steps(out / 'checkpoints', 'student')[-1]}" / name


def _cut(name: str, share: float, out: Path) -> None:
    path = _newest(out, name)
    os.truncate(path, int(path.stat().st_size * share))


def _flip(name: str, share: float, out: Path) -> None:
    path = _newest(out, name)
    content = bytearray(path.read_bytes())
    content[int(len(content) * share)] ^= 1
    path.write_bytes(content)


def _remove(name: str, out: Path) -> None:
    _newest(out, name).unlink()


def _again_and_again(straight: Straight) -> Iterator[Case]:
    """Kill three attempts in a row, each before a random operation."""
    numbers = random.Random(0)
    for _ in range(40):
        chosen = [numbers.randint(1, len(straight.operations) // 2) for _ in range(3)]
        faults = tuple(partial(runs.killed_before, number) for number in chosen)
        yield Case("kill -9 of three attempts", f"operations {chosen}", faults)


def complaint(case: Case, straight: Straight, folder: Path) -> str:
    """Inject the faults of a case, resume the run to its end, and return what is wrong; empty if nothing is."""
    run = Run(folder, case.faults, case.between)
    folder.mkdir()
    try:
        ended = run.carried_out()
        if ended is not Verdict.DONE:
            return f"it ends with {ended.name}: {run.said}"
        if case.saved is not None and run.after_fault != case.saved:
            return f"the checkpoints {run.after_fault} are left; expected {case.saved}"
        if lost := _lost(run):
            return f"the checkpoints {lost} are lost"
        if runs.digest(run.out) != straight.digest:
            return f"the weights are others: {run.said}"
        if runs.lines(run.out) != straight.lines:
            return f"metrics.jsonl differs: {run.said}"
        left = [str(each) for each in run.out.rglob("*.partial")]
        return f"{left} is left" if left else ""
    except Exception as error:  # reported with the case, and the campaign goes on
        return f"{type(error).__name__}: {error}; {run.said}"
    finally:
        shutil.rmtree(folder)


def _lost(run: Run) -> list[int]:
    """Return the steps that were saved before the first fault, are not whole after it, and were not rotated away."""
    newer = len([step for step in run.after_fault if step not in run.before_fault])
    kept = run.before_fault[max(len(run.before_fault) + newer - KEEP, 0) :]
    return [step for step in kept if step not in run.after_fault]


def carried_out(every: int = 1, word: str = "") -> tuple[dict[str, list[int]], list[str]]:
    """Return for each kind of fault how many were injected and how many went wrong, and the complaints."""
    table, complaints = dict[str, list[int]](), list[str]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        straight = runs.straight(folder)
        chosen = (case for case in cases(straight) if word in f"{case.kind}, {case.what}")
        for number, case in enumerate(chosen):
            if number % every:
                continue
            wrong = complaint(case, straight, folder / "case")
            counts = table.setdefault(case.kind, [0, 0])
            counts[0] += 1
            if wrong:
                counts[1] += 1
                complaints.append(f"{case.kind}, {case.what}: {wrong}")
                print(complaints[-1], flush=True)
    return table, complaints


def main() -> None:
    started = time.monotonic()
    table, complaints = carried_out(int((*sys.argv[1:2], "1")[0]), *sys.argv[2:3])
    print("\n| fault | injected | resumed to the same end |\n|---|---|---|")
    for kind, (count, wrong) in table.items():
        print(f"| {kind} | {count} | {count - wrong} |")
    total = sum(count for count, _ in table.values())
    print(f"| all | {total} | {total - len(complaints)} |\n\n{time.monotonic() - started:.0f} s")
    sys.exit(bool(complaints))


if __name__ == "__main__":
    main()
