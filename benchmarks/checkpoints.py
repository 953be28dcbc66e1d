"""What a checkpoint costs: the share of a step with and without, its size, and the time until a run has resumed.

    python benchmarks/checkpoints.py [ROUNDS]

One process trains a student of width 64; `--save-every 10` and `--save-every 0` take turns. CPU time covers the
process, including the thread that writes. Values are medians, with the smallest and largest. A checkpoint is also
copied, written, read and restored alone, and a run is resumed that has no steps left, compared with a new one.
"""

from __future__ import annotations

import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from reference_trainer import Lines, Settings
from reference_trainer.models.decoder import DecoderConfig, new_decoder
from reference_trainer.pipeline.distill import Distillation
from reference_trainer.storage.checkpoints import Manifest, read_checkpoint, save_checkpoint
from reference_trainer.storage.snapshot import restore, snapshot

STEPS, EVERY, WIDTH, MIB = 40, 10, 64, 1 << 20


class Unevaluated(Distillation):
    """A distillation without the evaluation at its end, which takes longer than its steps."""

    def evaluate(self) -> dict[str, Any]:
        return {}


@dataclass
class Place:
    """A folder with a cached teacher; every run has its own output in it."""

    folder: Path
    runs: int = 0

    def settings(self, **others: Any) -> Settings:
        self.runs += 1
        given = {"out": self.folder / f"out{self.runs}", "teacher_cache": self.folder / "cache", "device": "cpu"}
        sizes = {"width": WIDTH, "teacher_steps": 1, "max_steps": STEPS, "batch_size": 8, "length": 64}
        return Settings(**{**given, **sizes, **others})


def trained(settings: Settings) -> tuple[float, float]:
    """Return the milliseconds of CPU time and of wall time of the training; the last write is awaited."""
    with Unevaluated(settings, lines=Lines(io.StringIO())) as run, run:
        run.prepare()
        cpu, wall = time.process_time(), time.perf_counter()
        run.conclude(run.run())
    return 1e3 * (time.process_time() - cpu), 1e3 * (time.perf_counter() - wall)


def cpu_ms(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return 1e3 * (time.process_time() - started)


def wall_ms(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - started)


def row(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} | {min(values):.1f} to {max(values):.1f}"


def steps(place: Place, rounds: int) -> None:
    """Print the time of a step without and with checkpoints, in turns."""
    times: dict[int, list[tuple[float, float]]] = {0: [], EVERY: []}
    for number in range(rounds + 1):
        for every, each in times.items():
            taken = trained(place.settings(save_every=every, keep=2))
            if number:  # the first round fills caches
                each.append(taken)
    for kind, name in enumerate(("CPU", "wall")):
        per_step = {every: [taken[kind] / STEPS for taken in each] for every, each in times.items()}
        without, saving = (statistics.median(each) for each in per_step.values())
        print(f"| a step without checkpoints, {name} ms | {row(per_step[0])} |")
        print(f"| a step with one every {EVERY} steps, {name} ms | {row(per_step[EVERY])} |")
        print(f"| share of the step, {name} | {100 * (saving / without - 1):+.1f} % | |")


def alone(folder: Path, rounds: int) -> None:
    """Print the time to copy, write, read and restore a checkpoint alone, and its size."""
    decoder = new_decoder(DecoderConfig(vocab_size=256, layers=2, width=WIDTH, heads=4), 0)
    optimizer = torch.optim.AdamW(decoder.parameters())
    decoder(torch.zeros(1, 4, dtype=torch.int64)).sum().backward()
    optimizer.step()
    modules = {"student": decoder}
    taken = snapshot(modules, optimizer)
    times: dict[str, list[float]] = {}
    for step in range(1, rounds + 1):
        manifest = Manifest(run_id="student", step=step, conditions={}, state={})
        path = folder / f"student-step{step}"
        works: dict[str, Callable[[], object]] = {
            "copy, for which a step waits": lambda: snapshot(modules, optimizer),
            "write, sync, read back and rename": lambda m=manifest: save_checkpoint(folder, m, taken.tensors),
            "read and check": lambda p=path: read_checkpoint(p),
            "restore": lambda: restore(taken, modules, optimizer),
        }
        for name, work in works.items():
            times.setdefault(name, []).append(wall_ms(work))
    for name, each in times.items():
        print(f"| {name}, wall ms | {row(each)} |")
    size = sum(each.stat().st_size for each in path.iterdir())
    weights = sum(each.numel() * each.element_size() for each in decoder.parameters())
    print(f"| size in MiB; size of the weights | {size / MIB:.2f} | {weights / MIB:.2f} |")


def resumed(place: Place, rounds: int) -> None:
    """Print how long a run takes that resumes after its last step, and one that is prepared for its first."""
    first = place.settings(save_every=EVERY)
    trained(first)
    again = first.model_copy(update={"resume": Path("latest"), "force": True})

    def prepared(settings: Settings) -> None:
        with Unevaluated(settings, lines=Lines(io.StringIO())) as run, run:
            run.prepare()

    times = [(cpu_ms(lambda: prepared(again)), cpu_ms(lambda: prepared(place.settings()))) for _ in range(rounds)]
    print(f"| prepare a run that resumes, CPU ms | {row([resuming for resuming, _ in times])} |")
    print(f"| prepare a new run, CPU ms | {row([new for _, new in times])} |")


def main() -> None:
    torch.set_num_threads(1)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        print("| | median | range |\n|---|---|---|")
        place = Place(Path(folder).resolve())
        steps(place, rounds)
        alone(place.folder / "alone", 3 * rounds)
        resumed(place, rounds)


if __name__ == "__main__":
    main()
