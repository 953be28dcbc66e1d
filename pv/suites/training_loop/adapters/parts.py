"""What the shipped adapters write where a library leaves it to its user: the optimizer and the schedule."""

from collections.abc import Callable, Iterable

from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from pv.suites.training_loop.job import Job


def optimizer_of(job: Job, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """Return the optimizer of a job over the parameters that are trained."""
    kinds: dict[str, Callable[..., Optimizer]] = {"sgd": SGD, "adamw": AdamW}
    return kinds[job.optimizer]([each for each in parameters if each.requires_grad], lr=job.rate)


def factor(job: Job, done: int, planned: int) -> float:
    """Return what the schedule multiplies the rate by after `done` of the planned steps."""
    if done < job.warmup:
        return done / job.warmup
    if job.schedule == "constant":
        return 1.0
    return max(0.0, (planned - done) / max(1, planned - job.warmup))


def scheduler_of(job: Job, optimizer: Optimizer, planned: int, ranks: int = 1) -> LambdaLR:
    """Return the scheduler of a job. ranks: how often it is stepped for each optimizer step."""
    return LambdaLR(optimizer, lambda stepped: factor(job, stepped // ranks, planned))
