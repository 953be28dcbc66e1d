"""The parts of a run of the suite's own loop."""

from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from pv.suites.training_loop.job import Job

Batch = dict[str, Tensor]
Sums = tuple[float, int]
"""A loss in nats summed over the scored tokens, and their number."""


@dataclass(slots=True)
class State:
    """What a checkpoint holds beside the states of model, optimizer, schedule and random numbers.

    tokens: scored since the run began. since: the sums of each micro-batch, by step, since the last log. best: the
    least evaluation loss and its step.
    """

    step: int = 0
    tokens: int = 0
    since: list[list[Sums]] = field(default_factory=list)
    best: tuple[float, int] | None = None
    logs: list[dict[str, float]] = field(default_factory=list)
    evaluations: list[tuple[int, float]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Training:
    """The parts of a run."""

    job: Job
    model: nn.Module
    optimizer: Optimizer
    scheduler: LambdaLR
    scaler: GradScaler
    average: nn.Module
    state: State
    events: list[str]
