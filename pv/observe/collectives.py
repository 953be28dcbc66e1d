"""Records the collectives that a script calls, except the collectives of DistributedDataParallel.

1. Exchanges: for each function in `EXCHANGES`, the largest number of floating-point elements in the arguments of its
   calls between two steps. Calls inside a module's call or a backward pass have a total of their own. A total is
   recorded only if it is more than 20 % larger than the recorded one. Calls before the end of the first step are not
   recorded.
2. Reductions: the number of floating-point elements that are reduced over all ranks between two steps. Calls of
   `all_reduce` inside a module's call or a backward pass do not count, because they belong to tensor parallelism.
   `reduce_scatter_tensor` and `reduce_scatter_single` always count, since FSDP2 reduces gradients with them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Optional

import torch
from torch import Tensor

from . import frames

if TYPE_CHECKING:
    from .observer import Observer


EXCHANGES = (
    *("all_reduce", "reduce", "broadcast", "gather", "scatter", "all_gather", "all_gather_into_tensor", "all_to_all"),
    *("all_to_all_single", "send", "recv", "isend", "irecv", "batch_isend_irecv", "reduce_scatter"),
    *("reduce_scatter_tensor", "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"),
)
"""Functions of `torch.distributed` by which ranks exchange tensors or objects."""


NAMED_STEPS = 10
"""The names of the functions that call a reduction are recorded only in this number of steps at the start."""


def _names_of_callers(frame: Optional[FrameType]) -> set[str]:
    """Return the name of the function that runs in `frame`, and the name of its caller."""
    caller = frame.f_back if frame is not None else None
    return {function.f_code.co_name for function in (frame, caller) if function is not None}


def install(observer: Callable[[], Observer]) -> None:
    """Wrap the functions of `torch.distributed` that exchange or reduce tensors.

    Args:
        observer: Returns the observer of this process.
    """
    distributed = torch.distributed

    def wrap_exchange(original: Callable[..., object], name: str) -> Callable[..., object]:
        @frames.wraps(original)
        def exchange(*args: Any, **kwargs: Any) -> object:
            result = original(*args, **kwargs)
            active = observer()
            if active.steps and active.is_same_process():
                with active.observing("exchange"):
                    tensors = active.tensors_in((args, kwargs))
                    size = sum(tensor.numel() for tensor in tensors if tensor.is_floating_point())
                    inside = active.in_module or active.backward is not None
                    # Number of steps at the last exchange, elements exchanged since that step, largest recorded total.
                    step, total, largest = active.exchanged.get((name, inside), (active.steps, 0, -1))
                    total = size + (total if step == active.steps else 0)
                    # A model may be exchanged in many parts: to keep the trace short, record only growth above 20 %.
                    if total > 1.2 * largest:
                        largest = total
                        active.add("exchange", name=name, elements=total, step=active.steps, inside=inside)
                    active.exchanged[name, inside] = (active.steps, total, largest)
            return result

        return exchange

    for name in EXCHANGES:
        if hasattr(distributed, name):
            setattr(distributed, name, wrap_exchange(getattr(distributed, name), name))

    def wrap_reduction(original: Callable[..., object], position: int, name: str) -> Callable[..., object]:
        @frames.wraps(original)
        def reduce(*args: object, **kwargs: Any) -> object:
            result = original(*args, **kwargs)
            active = observer()
            inside = name == "all_reduce" and (active.in_module or active.backward is not None)
            tensor = args[position] if len(args) > position else kwargs.get("input", kwargs.get("tensor"))
            if isinstance(tensor, Tensor) and tensor.is_floating_point() and not inside and active.is_same_process():
                with active.observing("reduction"):
                    group: Any = args[position + 2] if len(args) > position + 2 else kwargs.get("group")
                    if distributed.get_world_size(group) == distributed.get_world_size():
                        active.reduced += tensor.numel()
                        if active.steps < NAMED_STEPS:
                            for caller in _names_of_callers(sys._getframe(1)):
                                active.reducers[caller] = active.reducers.get(caller, 0) + tensor.numel()
            return result

        return reduce

    # A function, and the position of its input tensor; the operation and the group are the next arguments. FSDP2 calls
    # `reduce_scatter_single` since torch 2.13.
    for name, position in (("all_reduce", 0), ("reduce_scatter_tensor", 1), ("reduce_scatter_single", 1)):
        if hasattr(distributed, name):
            setattr(distributed, name, wrap_reduction(getattr(distributed, name), position, name))
