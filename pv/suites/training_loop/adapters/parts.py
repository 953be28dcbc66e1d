"""What the shipped adapters write where a library leaves it to its user: optimizer, schedule and loader."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

from pv.suites.training_loop.job import Example, Job


def optimizer_of(job: Job, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """Return the optimizer of a job over the parameters that are trained."""
    kinds: dict[str, Callable[..., Optimizer]] = {"sgd": SGD, "adamw": AdamW}
    return kinds[job.optimizer]([each for each in parameters if each.requires_grad], lr=job.rate)


def factor(job: Job, done: int, planned: int) -> float:
    """Return the factor of the rate after `done` of the planned steps."""
    if done < job.warmup:
        return done / job.warmup
    if job.schedule == "constant":
        return 1.0
    return max(0.0, (planned - done) / max(1, planned - job.warmup))


def scheduler_of(job: Job, optimizer: Optimizer, planned: int, ranks: int = 1) -> LambdaLR:
    """Return the scheduler of a job. ranks: the number of times that it is stepped for each optimizer step."""
    return LambdaLR(optimizer, lambda stepped: factor(job, stepped // ranks, planned))


def pairs_of(
    job: Job, examples: tuple[Example, ...], size: int, seed: int | None, *, shuffle: bool = False
) -> DataLoader[Any]:
    """Return a loader of pairs of token ids and labels [B, T].

    Args:
        job: The job, whose collator and number of workers are used.
        examples: The data.
        size: Examples of a batch.
        seed: Of a generator for this loader, as PyTorch's notes on reproducibility advise; None for the default
            generator.
        shuffle: Whether each pass has a random order.
    """

    def collate(examples: list[Example]) -> Any:
        batch = job.collate(examples)
        return batch["input_ids"], batch["labels"]

    draw = None if seed is None else torch.Generator().manual_seed(seed)
    rows: Any = list(examples)  # a loader takes any sequence
    return DataLoader(rows, size, shuffle=shuffle, collate_fn=collate, num_workers=job.workers, generator=draw)
