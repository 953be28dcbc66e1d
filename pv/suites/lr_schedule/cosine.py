"""The subject of the contract: linear warm-up, then cosine decay (arXiv:1608.03983, equation 5, without restarts).

Learning rates are computed by small functions, so that every mutant of the contract edits one expression.
"""

import math
from typing import TypedDict

from torch.optim import Optimizer


class State(TypedDict):
    """The number of steps taken, and the base rate of every parameter group."""

    steps: int
    bases: list[float]


class WarmupCosine:
    """A schedule that sets the learning rate of each parameter group to its base rate times a factor.

    The base rate of a group is its learning rate when the schedule is created. `load_state_dict` replaces it.

    Args:
        optimizer: The optimizer.
        warmup: Number of steps in which the factor rises from 0 to 1.
        total: Number of steps, warm-up included, after which the factor is `min_factor`.
        min_factor: The factor at the end of the decay.

    Raises:
        ValueError: The warm-up is longer than the whole schedule.
    """

    def __init__(self, optimizer: Optimizer, warmup: int, total: int, min_factor: float = 0.1) -> None:
        if warmup > total:
            raise ValueError(f"invalid value {warmup} for 'warmup': expected at most {total}, the value of 'total'")
        self.optimizer, self.warmup, self.total, self.min_factor = optimizer, warmup, total, min_factor
        self.bases = [float(group["lr"]) for group in optimizer.param_groups]
        self.steps = 0
        self.set_rates()

    def step(self) -> None:
        self.steps = next_step(self)
        self.set_rates()

    def set_rates(self) -> None:
        factor = rate_factor(self.steps, self.warmup, self.total, self.min_factor)
        for k, group in enumerate(self.optimizer.param_groups):
            group["lr"] = base_rate(self.bases, k) * factor

    def state_dict(self) -> State:
        return schedule_state(self.steps, self.bases)

    def load_state_dict(self, state: State) -> None:
        self.steps, self.bases = state["steps"], state["bases"]


def next_step(schedule: WarmupCosine) -> int:
    return schedule.steps + 1


def base_rate(bases: list[float], group: int) -> float:
    return bases[group]


def schedule_state(steps: int, bases: list[float]) -> State:
    return {"steps": steps, "bases": bases}


def rate_factor(step: int, warmup: int, total: int, min_factor: float) -> float:
    """Return the factor for a step. Steps are counted from 0."""
    if step < warmup:
        return warmup_factor(step, warmup)
    return cosine_factor(progress(step - warmup, total - warmup), min_factor)


def warmup_factor(step: int, warmup: int) -> float:
    return step / warmup


def progress(step: int, steps: int) -> float:
    """Return the completed fraction of the decay, at most 1.

    Args:
        step: The number of steps since the warm-up.
        steps: The number of steps of the decay. If it is 0, the fraction is 1.
    """
    return min(1.0, step / steps) if steps else 1.0


def cosine_factor(fraction: float, min_factor: float) -> float:
    """Return the factor when a fraction of the decay is completed."""
    # eta = eta_min + (eta_max - eta_min) (1 + cos(pi T_cur / T)) / 2, with eta_max = 1.
    return min_factor + (1 - min_factor) * (1 + math.cos(math.pi * fraction)) / 2
