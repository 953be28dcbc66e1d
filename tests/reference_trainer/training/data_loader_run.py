"""`reference-trainer distill` with batches from the workers of a DataLoader, which hang in step 3 if HANG is set."""

import os
import sys
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Subset

from reference_trainer import Distillation, Lines, MetricSum, Settings, interrupts
from reference_trainer.distillation.protocols import Batch

SLOW_ROW = 2  # of step 3


class Rows(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 5

    def __getitem__(self, row: int) -> torch.Tensor:
        time.sleep(1000 if row == SLOW_ROW and "HANG" in os.environ else 0)
        return torch.full((1, 8), row)


class Loaded:
    batches = 5
    _rows: Any = None

    def batch(self, epoch: int, position: int) -> Batch:
        if self._rows is None:
            left = Subset(Rows(), range(position - 1, self.batches))
            self._rows = iter(DataLoader(left, batch_size=None, num_workers=2))
        if position == SLOW_ROW + 1:
            sys.stdout.write(f"step {position} fetches\n")
            sys.stdout.flush()
        tokens = next(self._rows)
        return Batch(tokens=tokens, labels=tokens)


class Own(Distillation):
    def make_batches(self) -> Loaded:
        return Loaded()

    def make_teacher(self) -> Any:
        return self.make_student()

    def evaluate(self) -> dict[str, MetricSum]:
        return {}


def run(settings: Settings, *, lines: Lines) -> Any:
    with Own(settings, lines=lines) as distillation:
        distillation.prepare()
        return distillation.conclude(distillation.run())


if __name__ == "__main__":
    interrupts.exit_at_once()
    from reference_trainer.cli import main

    main(prog_name="reference-trainer", obj=run)
