"""How the student is spread over the ranks of a run: `ddp`, a copy on each, or `fsdp2`, a shard on each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from reference_trainer.distillation.matching import FeatureMatching
from reference_trainer.ranks.parallel import DataParallel, Parallel, ShardedParallel, shard, warm_up, whole

__all__ = ["gather_full", "strategy_of", "wrap_projections", "wrap_student"]

ONE_PROCESS_STRATEGY = "one process"


def strategy_of(strategy: str, world_size: int) -> str:
    """Return the strategy as checkpoints name it."""
    return strategy if world_size > 1 else ONE_PROCESS_STRATEGY


def wrap_student(
    student: nn.Module, strategy: str, device: torch.device, wrap: Callable[[nn.Module], nn.Module]
) -> nn.Module:
    """Return the module that the ranks train: one with the weights of rank 0. The parameters stay those of `student`.

    wrap: makes the module whose forward is called, such as one under autocast.
    """
    if strategy == "fsdp2":
        with torch.no_grad():  # each rank would keep its own part of another student
            for tensor in (*student.parameters(), *student.buffers()):
                dist.broadcast(tensor, src=0)
        return wrap(shard(student, device))
    module = DistributedDataParallel(wrap(student))
    warm_up(module, torch.tensor([[0]], device=device))
    return module


def wrap_projections(module: nn.Module, features: FeatureMatching) -> tuple[FeatureMatching, Parallel]:
    """Return the matching with projections whose gradients are reduced over the ranks, and what the loop asks of them.

    module: what `wrap_student` returned; projections with parameters are spread in the same way.
    """
    if not isinstance(module, DistributedDataParallel):
        device = next(module.parameters()).device
        return features, ShardedParallel(module, *(shard(projection, device) for projection in features.projections))
    # One between equal widths has no parameters.
    projections = [
        DistributedDataParallel(projection) if list(projection.parameters()) else projection
        for projection in features.projections
    ]
    others = [wrapped for wrapped in projections if isinstance(wrapped, DistributedDataParallel)]
    for wrapped in others:
        warm_up(wrapped, next(wrapped.parameters()))  # its own weights [W, S] are as good as states
    return replace(features, projections=projections), DataParallel(module, *others)


def gather_full(student: nn.Module, like: Callable[[], nn.Module]) -> nn.Module:
    """Return a sharded student as one process has it. All ranks call this; like: makes a module of its kind."""
    full = {name: whole(tensor) for name, tensor in student.state_dict().items()}
    alone = like()
    alone.load_state_dict(full)
    return alone
