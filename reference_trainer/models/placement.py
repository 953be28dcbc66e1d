"""Choose the device, the number of threads and the dtype with which a model computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from reference_trainer.errors import SettingError
from reference_trainer.models.decoder import Decoder
from reference_trainer.models.loading import is_skeleton

Module = TypeVar("Module", bound=nn.Module)


def usable_device(name: str) -> torch.device:
    """Return the device of this name; `auto` selects CUDA if it is available, else the CPU.

    A GPU is returned with its index, because PyTorch compares devices by index too: the `device` of a tensor is
    `cuda:0`, which does not equal `cuda`. Raise `SettingError` if the device cannot be used.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty((), device=name).device  # raises if the device cannot be used
    except (RuntimeError, AssertionError) as error:
        raise SettingError(
            f"invalid value {name!r} for 'device': {str(error).splitlines()[0]}; use auto to select an available device"
        ) from error


def placed(module: Module, device: torch.device) -> Module:
    """Move the module to a device and return it. In a skeleton, tensors on the meta device stay there."""
    if is_skeleton(module):
        # `_apply` of torch has no types.
        module._apply(lambda tensor: tensor if tensor.is_meta else tensor.to(device))  # type: ignore[no-untyped-call]
        return module
    return module.to(device)


@contextmanager
def cpu_threads(number: int | None, environment: Mapping[str, str]) -> Iterator[None]:
    """Within the context, let PyTorch use `number` CPU threads.

    If `number` is None and `environment` has OMP_NUM_THREADS, leave the number unchanged: PyTorch has read this
    variable. If both are missing, use one thread: with small models on busy cores, several threads lose more time by
    waiting for each other than they save.
    """
    before = torch.get_num_threads()
    if number is not None or not environment.get("OMP_NUM_THREADS"):
        torch.set_num_threads(number or 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def device_name(device: torch.device) -> str:
    """Return the name of a GPU as its driver gives it; "cpu" for the CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def stored_in(dtype: str, decoder: Decoder) -> Decoder:
    """Return the decoder with its weights in float64 for a float64 run, otherwise in float32 (also for bfloat16)."""
    return decoder.double() if dtype == "float64" else decoder.float()


def computing_in(dtype: str, module: nn.Module) -> nn.Module:
    """Return the module, under autocast for a bfloat16 run."""
    return _Autocast(module) if dtype == "bfloat16" else module


class _Autocast(nn.Module):
    """A module that computes under bfloat16 autocast; its weights keep their dtype."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, tokens_BT: Tensor, **options: object) -> object:
        with torch.autocast(tokens_BT.device.type, dtype=torch.bfloat16):
            return self.module(tokens_BT, **options)
