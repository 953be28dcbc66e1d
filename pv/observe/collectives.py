"""Counts the elements that are reduced over all ranks between two steps, except by DistributedDataParallel.

`all_reduce` does not count inside a module's call or a backward pass, where it belongs to tensor parallelism.
`reduce_scatter` always counts, since FSDP2 reduces gradients by it.
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
    """Wrap `all_reduce` and the functions that reduce and scatter a tensor in `torch.distributed`.

    Args:
        observer: Returns the observer of this process.
    """
    distributed = torch.distributed

    def make(original: Callable[..., object], position: int, name: str) -> Callable[..., object]:
        @frames.wraps(original)
        def reduce(*args: object, **kwargs: Any) -> object:
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

    # FSDP2 calls `reduce_scatter_single` since torch 2.13.
    for name, position in (("all_reduce", 0), ("reduce_scatter_tensor", 1), ("reduce_scatter_single", 1)):
        if not hasattr(distributed, name):
            continue
        setattr(distributed, name, make(getattr(distributed, name), position, name))
