"""Processes that train one model together: what the loop asks of them, for one process and for data-parallel ranks.

Every rank holds the whole model and its own batches. One integer reduction per window of micro-batches gives the number
of scored tokens of all ranks, by which each rank divides; gradients are reduced once, in the last micro-batch.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from torch import Tensor
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

__all__ = ["ONE_PROCESS", "DataParallel", "OneProcess", "Parallel"]


class Parallel(Protocol):
    """The ranks of a run. Every rank calls the same methods in the same order.

    gradient_factor: what the reduction of gradients divides them by; a gradient is multiplied by it beforehand, so that
    the reduction gives the sum over ranks.
    """

    @property
    def rank(self) -> int:
        """Return the number of this process, from 0."""
        ...

    @property
    def local_rank(self) -> int:
        """Return the number of this process on its machine, from 0."""
        ...

    @property
    def world_size(self) -> int:
        """Return the number of processes."""
        ...

    @property
    def gradient_factor(self) -> float: ...

    def sum_counts(self, counts_K: Tensor) -> Tensor:
        """Return int64 [K] summed over ranks, on the device of the argument."""
        ...

    def sum_metrics(self, sums_K: Tensor) -> Tensor:
        """Return float64 [K] summed over ranks, on the device of the argument."""
        ...

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        """Return the context of a forward and its backward; gradients are reduced in the `last` of a window only."""
        ...


class OneProcess:
    """A run of one process: nothing is reduced."""

    rank = 0
    local_rank = 0
    world_size = 1
    gradient_factor = 1.0

    def sum_counts(self, counts_K: Tensor) -> Tensor:
        return counts_K

    def sum_metrics(self, sums_K: Tensor) -> Tensor:
        return sums_K

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        return nullcontext()


ONE_PROCESS = OneProcess()


class DataParallel:
    """The ranks of a `DistributedDataParallel` module, which averages gradients over its process group.

    The student of the run calls this module, not the one inside it: only its forward prepares the reduction.
    """

    def __init__(self, module: DistributedDataParallel) -> None:
        self._module = module
        self._group = module.process_group
        self.rank = dist.get_rank(self._group)
        self.local_rank = int(os.environ.get("LOCAL_RANK", self.rank))
        self.world_size = dist.get_world_size(self._group)
        self.gradient_factor = float(self.world_size)

    def sum_counts(self, counts_K: Tensor) -> Tensor:
        return self._sum(counts_K)

    def sum_metrics(self, sums_K: Tensor) -> Tensor:
        return self._sum(sums_K)

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        return nullcontext() if last else self._module.no_sync()

    def _sum(self, values_K: Tensor) -> Tensor:
        summed_K = values_K.to(self._module.device, copy=True)  # NCCL reduces tensors of its device only
        dist.all_reduce(summed_K, group=self._group)
        return summed_K.to(values_K.device)
