"""Counts the elements that are reduced over all ranks between two steps, by calls other than DistributedDataParallel's.

Reductions inside a module's call, or of all ranks inside a backward pass, belong to tensor parallelism; there, only
scattering reductions count, with which FSDP2 reduces gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import frames

if TYPE_CHECKING:
    from .observer import Observer


def install(observer: Callable[[], Observer]) -> None:
    """Wrap reductions of `torch.distributed`.

    Args:
        observer: Returns the observer of this process.
    """
    distributed = torch.distributed

    def make(original: Callable[..., object], position: int, name: str) -> Callable[..., object]:
        @frames.wraps(original)
        def reduce(*args: Any, **kwargs: Any) -> object:
            result = original(*args, **kwargs)
            active = observer()
            inside = name == "all_reduce" and (active.in_module or active.backward is not None)
            tensor = args[position] if len(args) > position else kwargs.get("input", kwargs.get("tensor"))
            if isinstance(tensor, Tensor) and tensor.is_floating_point() and not inside and active.is_same_process():
                with active.observing("reduction"):
                    if distributed.get_world_size(kwargs.get("group")) == distributed.get_world_size():
                        active.reduced += tensor.numel()
            return result

        return reduce

    # FSDP2 calls the last one since torch 2.13.
    for name, position in (("all_reduce", 0), ("reduce_scatter_tensor", 1), ("reduce_scatter_single", 1)):
        if not hasattr(distributed, name):
            continue
        setattr(distributed, name, make(getattr(distributed, name), position, name))
