"""Runs of a student with dropout, which records the masks of its micro-batches."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from falsifiers.callbacks.real_run import SETTINGS, tables
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import ModuleStudent
from reference_trainer.plan.schedule import Schedule
from reference_trainer.ranks.parallel import OneProcess
from reference_trainer.training.state import UpdateOptions

EPOCHS, MICRO_BATCHES, ACCUMULATION = 2, 3, 2


def dropped(device: torch.device | str, *, training: bool = True) -> Tensor:
    """Return 48 ones after dropout."""
    return F.dropout(torch.ones(48, device=device), training=training)


def text(kept: Tensor) -> str:
    """Return a mask as ones and zeros."""
    return "".join("1" if each else "0" for each in kept.tolist())


class Noisy(nn.Module):
    """A table of logits with dropout; `masks` has the mask of each forward in train mode, as ones and zeros."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(2, 2, dtype=torch.float64, device=device))
        self.masks: list[str] = []

    def forward(self, tokens: Tensor) -> Tensor:
        kept = dropped(self.table.device, training=self.training)
        self.masks.append(text(kept))
        logits: Tensor = self.table[tokens] * kept[0]
        return logits


class Rank(OneProcess):
    """One process with the number of another rank."""

    def __init__(self, rank: int) -> None:
        self.rank = rank


def masks(
    subject: Any,
    device: str,
    *,
    seed: int | None,
    rank: int = 0,
    callbacks: Sequence[Any] = (),
    module: Any = None,
    data: list[str] | None = None,
) -> list[str]:
    """Return the masks of the micro-batches of a run: two epochs of a full and a partial window.

    data: gets the mask of each micro-batch that is loaded; by default the data draw no random numbers.
    """
    module = module or Noisy(device)
    tokens = torch.tensor([[0, 1]], device=device)

    def batch(epoch: int, number: int) -> Batch:
        if data is not None:
            data.append(text(dropped(device)))
        return Batch(tokens=tokens, labels=tokens)

    subject.train(
        tables(torch.eye(2, dtype=torch.float64, device=device), torch.eye(2, dtype=torch.float64))[0],
        ModuleStudent(module, 2),
        batch,
        torch.optim.SGD(module.parameters(), lr=0.1),
        schedule=Schedule(
            epochs=EPOCHS, steps_per_epoch=2, accumulation=ACCUMULATION, micro_batches=MICRO_BATCHES, log_every=1
        ),
        objective=subject.Objective(**SETTINGS),
        learning_rate=lambda step: 0.1,
        callbacks=callbacks,
        parallel=Rank(rank),
        options=UpdateOptions(seed=seed),
    )
    return list(module.masks)
