"""Batches of every epoch of a run, by number, for one rank of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from reference_trainer.data.text import Rows, epoch_order
from reference_trainer.distillation.domain import IGNORE_INDEX
from reference_trainer.distillation.protocols import Batch

__all__ = ["Batches", "ShuffledBatches"]


class Batches(Protocol):
    """The batches of a run: any of them can be asked for, in any order, and equal numbers give equal batches."""

    @property
    def batches(self) -> int:
        """Return the number of batches of an epoch, the same for every rank."""
        ...

    def batch(self, epoch: int, position: int) -> Batch:
        """Return batch `position` of this rank in an epoch, both from 1."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffledBatches:
    """The rows of a text, in an order of its own in each epoch, dealt to the ranks batch by batch.

    A rank without a batch left gets one sequence whose labels are all ignored: it takes part, and counts for nothing.
    """

    sequences: Rows
    seed: int
    rank: int = 0
    world_size: int = 1

    @property
    def batches(self) -> int:
        return -(-self.sequences.batches // self.world_size)

    def batch(self, epoch: int, position: int) -> Batch:
        order = epoch_order(self.seed, epoch, len(self.sequences))
        dealt = (position - 1) * self.world_size + self.rank + 1
        if dealt <= self.sequences.batches:
            return self.sequences.batch(order, dealt)
        tokens_1T = self.sequences.batch(order, 1).tokens[:1]
        return Batch(tokens=tokens_1T, labels=torch.full_like(tokens_1T, IGNORE_INDEX))
