"""The suite's own subject: a linear warm-up, then half a cosine (arXiv:1608.03983, equation 5, without restarts)."""

import math
from typing import TypedDict

from torch.optim import Optimizer


class State(TypedDict):
    """The steps done, and the first rate of every group."""

    steps: int
    bases: list[float]


class WarmupCosine:
    """Sets the rate of each group to a factor of its first one. min_factor: what is left at the end."""

    def __init__(self, optimizer: Optimizer, warmup: int, total: int, min_factor: float = 0.1) -> None:
        self.optimizer, self.warmup, self.total, self.min_factor = optimizer, warmup, total, min_factor
        self.bases = [float(group["lr"]) for group in optimizer.param_groups]
        self.steps = 0
        self.set()

    def step(self) -> None:
        self.steps = following(self)
        self.set()

    def set(self) -> None:
        now = factor(self.steps, self.warmup, self.total, self.min_factor)
        for k, group in enumerate(self.optimizer.param_groups):
            group["lr"] = base(self.bases, k) * now

    def state_dict(self) -> State:
        return saved(self.steps, self.bases)

    def load_state_dict(self, state: State) -> None:
        self.steps, self.bases = state["steps"], state["bases"]


def following(schedule: WarmupCosine) -> int:
    return schedule.steps + 1


def base(bases: list[float], group: int) -> float:
    return bases[group]


def saved(steps: int, bases: list[float]) -> State:
    return {"steps": steps, "bases": bases}


def factor(step: int, warmup: int, total: int, least: float) -> float:
    return rising(step, warmup) if step < warmup else falling(progress(step - warmup, total - warmup), least)


def rising(step: int, warmup: int) -> float:
    return step / warmup


def progress(step: int, steps: int) -> float:
    """Return the part of the decay that is over, 0 to 1; of no steps all is over."""
    return min(1.0, step / steps) if steps else 1.0


def falling(over: float, least: float) -> float:
    # eta = eta_min + (eta_max - eta_min) (1 + cos(pi T_cur / T)) / 2, with eta_max = 1.
    return least + (1 - least) * (1 + math.cos(math.pi * over)) / 2
