"""Measure what observation costs: CPU time of observed and unobserved blocks of steps, alternating in one process.

    python benchmarks/observe.py [--pairs 12]

Prints for each size of a model the median ratio of the CPU times of pairs of blocks, and the size of the trace for
1,000 steps. Two micro-batches a step, AdamW, clipping.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from pv.observe import observer

BLOCK = 10
"""Steps in a block."""


def block(model: nn.Module, optimizer: torch.optim.Optimizer, vocabulary: int) -> float:
    """Take some steps, and return the CPU seconds that they took."""
    started = time.process_time()
    for _ in range(BLOCK):
        optimizer.zero_grad()
        for _ in range(2):
            tokens = torch.randint(vocabulary, (8, 33))
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            (loss / 2).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return time.process_time() - started


def model_of(width: int, layers: int, vocabulary: int) -> nn.Module:
    """Return a language model without attention, whose cost depends on its parameters alone."""

    def feed_forward() -> nn.Module:
        return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    return nn.Sequential(
        nn.Embedding(vocabulary, width), *(feed_forward() for _ in range(layers)), nn.Linear(width, vocabulary)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    pairs = parser.parse_args().pairs
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        observer.install(Path(folder))
        for width, layers, vocabulary in ((48, 3, 256), (128, 6, 512), (256, 6, 1024)):
            torch.manual_seed(0)
            model = model_of(width, layers, vocabulary)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            block(model, optimizer, vocabulary)  # the steps in which every parameter is looked at
            before = sum(file.stat().st_size for file in Path(folder).iterdir())
            ratios = []
            for _ in range(pairs):
                with observer.current.observing("benchmark"):  # what the observer does itself is not observed
                    with torch.enable_grad():
                        plain = block(model, optimizer, vocabulary)
                ratios.append(block(model, optimizer, vocabulary) / plain)
            observer.current.trace.flush()
            size = sum(file.stat().st_size for file in Path(folder).iterdir()) - before
            count = sum(p.numel() for p in model.parameters())
            print(
                f"{count:>9,} parameters: {statistics.median(ratios):.3f} times the CPU time (quartiles "
                f"{statistics.quantiles(ratios)[0]:.3f}, {statistics.quantiles(ratios)[2]:.3f}); "
                f"{size / (pairs * BLOCK) * 1000 / 2**20:.2f} MiB for 1,000 steps"
            )


if __name__ == "__main__":
    main()
