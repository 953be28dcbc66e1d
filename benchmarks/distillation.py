"""What distillation brings: default students against the same students trained on labels alone.

    OMP_NUM_THREADS=1 python benchmarks/distillation.py [FIRST]

Weights and order follow the seed and are the same for both students of a pair, as are the steps. The measure is
the cross-entropy with held-back text, in nats per byte. The seeds are the eight from FIRST, by default 100: the seeds
of the published table, on which no setting was chosen.
"""

from __future__ import annotations

import io
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from reference_trainer.callbacks.progress import Lines
from reference_trainer.config.settings import Settings
from reference_trainer.pipeline.distill import distill

SEEDS = 8
T_975_7 = 2.365  # Student's t, two-sided 95 %, seven degrees of freedom
LABELS_ALONE = {"ce_weight": 1.0, "kd_weight": 0.0}


def held_back(seed: int, **weights: Any) -> float:
    """Return the mean over the held-back text after a run with default settings but for these."""
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings(out=Path(directory) / "out", seed=seed, log_every=0, save_every=0, **weights)
        total = distill(settings, lines=Lines(io.StringIO())).held_back["hard_loss"]
    return total.sum / total.count


def main() -> None:
    print("| seed | distilled | labels alone | difference |\n|---|---|---|---|")
    first, differences = int(sys.argv[1]) if len(sys.argv) > 1 else 100, []
    for seed in range(first, first + SEEDS):
        distilled, labels = held_back(seed), held_back(seed, **LABELS_ALONE)
        differences.append(distilled - labels)
        print(f"| {seed} | {distilled:.4f} | {labels:.4f} | {distilled - labels:+.4f} |", flush=True)
    mean, half = statistics.mean(differences), T_975_7 * statistics.stdev(differences) / SEEDS**0.5
    print(f"mean {mean:+.4f} nats per byte, 95 % interval {mean - half:+.4f} to {mean + half:+.4f}; ", end="")
    print(f"worst {max(differences):+.4f}")


if __name__ == "__main__":
    main()
