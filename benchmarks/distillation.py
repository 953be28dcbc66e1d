"""What distillation brings: a student distilled against the same student trained on labels alone, over five seeds.

    python benchmarks/distillation.py [DIRECTORY]

One teacher for all; student weights and the order of the text follow the seed and are the same for both students of a
pair, as are the steps. Measured on held-back text: cross-entropy with the text, in nats per byte.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from reference_trainer.callbacks.lines import Lines
from reference_trainer.config.settings import Settings
from reference_trainer.pipeline.distill import distill

SEEDS = range(5)
T_975_4 = 2.776  # Student's t, two-sided 95 %, four degrees of freedom


def held_back(directory: Path, name: str, settings: Settings) -> float:
    with (directory / f"{name}.log").open("w", encoding="utf-8") as log:
        total = distill(settings, lines=Lines(log)).held_back["hard_loss"]
    return total.sum / total.count


def teacher_in(directory: Path) -> Path:
    """The teacher that a run with default settings trains and keeps."""
    cache = directory / "cache"
    held_back(directory, "teacher", Settings(out=directory / "teacher", teacher_cache=cache, max_steps=1))
    (teacher,) = cache.iterdir()
    return teacher


def pair(directory: Path, teacher: Path, seed: int) -> tuple[float, float]:
    both = []
    for name, ce_weight, kd_weight in (("distilled", 0.3, 0.7), ("labels", 1.0, 0.0)):
        name = f"{name}-{seed}"
        settings = Settings(
            out=directory / name, teacher=teacher, seed=seed, ce_weight=ce_weight, kd_weight=kd_weight, log_every=0
        )
        both.append(held_back(directory, name, settings))
    return both[0], both[1]


def main() -> None:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    teacher = teacher_in(directory)
    print("| seed | distilled | labels alone | difference |\n|---|---|---|---|")
    differences = []
    for seed in SEEDS:
        distilled, labels = pair(directory, teacher, seed)
        differences.append(distilled - labels)
        print(f"| {seed} | {distilled:.4f} | {labels:.4f} | {distilled - labels:+.4f} |", flush=True)
    mean = statistics.mean(differences)
    half = T_975_4 * statistics.stdev(differences) / len(differences) ** 0.5
    print(f"mean difference {mean:+.4f} nats per byte, 95 % interval {mean - half:+.4f} to {mean + half:+.4f}")


if __name__ == "__main__":
    main()
