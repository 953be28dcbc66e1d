"""PyTorch's global modes under which a subject's results must not change.

`MODES` maps a name to a factory of context managers, called with the device type; `WITHOUT_GRAPH` names the modes in
which autograd records nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch


@contextmanager
def _with(value: Any, get: Callable[[], Any], put: Callable[[Any], object]) -> Iterator[None]:
    """Set a global setting inside the context, and restore it afterwards."""
    before = get()
    put(value)
    try:
        yield
    finally:
        put(before)


def _default_dtype(dtype: torch.dtype) -> AbstractContextManager[None]:
    return _with(dtype, torch.get_default_dtype, torch.set_default_dtype)


def _deterministic() -> AbstractContextManager[None]:
    return _with(True, torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms)


MODES: dict[str, Callable[[str], AbstractContextManager[Any]]] = {
    "autocast to bfloat16": lambda device: torch.autocast(device, torch.bfloat16),
    "autocast to float16": lambda device: torch.autocast(device, torch.float16),
    "no_grad": lambda device: torch.no_grad(),
    "inference_mode": lambda device: torch.inference_mode(),
    "default dtype float64": lambda device: _default_dtype(torch.float64),
    "default dtype bfloat16": lambda device: _default_dtype(torch.bfloat16),
    "default device meta": lambda device: torch.device("meta"),
    "deterministic algorithms": lambda device: _deterministic(),
    "anomaly detection": lambda device: torch.autograd.set_detect_anomaly(True),
}
WITHOUT_GRAPH = ("no_grad", "inference_mode")
