"""Wrong ranks. `original` is the replaced function."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import fsdp

from reference_trainer.models.loading import set_weights


def average_not_undone(original: Any, self: Any, *modules: Any, **named: Any) -> None:
    original(self, *modules, **named)
    self.gradient_factor = 1.0


def whole_world_counted(original: Any, self: Any, *modules: Any, **named: Any) -> None:
    original(self, *modules, **named)
    self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
    self.gradient_factor = float(self.world_size)


def reduced_in_every_micro_batch(original: Any, self: Any, *, last: bool) -> Any:
    return nullcontext()


@contextmanager
def _off_after_the_forward(module: Any, context: Any) -> Iterator[None]:
    def enter(*_: Any) -> None:
        context.__enter__()

    handle = module.register_forward_hook(enter)
    try:
        yield
    finally:
        handle.remove()
        context.__exit__(None, None, None)


def reduced_since_the_forward(original: Any, self: Any, *, last: bool) -> Any:
    if last:
        return original(self, last=True)
    module = self._modules[0]
    return _off_after_the_forward(module, original(self, last=False))


def inner_module_called(original: Any, self: Any, module: Any, vocab_size: int, **options: Any) -> None:
    original(self, getattr(module, "module", module), vocab_size)


def counts_of_one_rank(original: Any, self: Any, counts_K: Tensor) -> Tensor:
    original(self, counts_K)
    return counts_K


def counts_summed_in_float32(original: Any, self: Any, counts_K: Tensor) -> Tensor:
    summed: Tensor = original(self, counts_K.float())
    return summed.to(counts_K.dtype)


def mean_over_ranks(original: Any, self: Any, sums_K: Tensor) -> Tensor:
    averaged: Tensor = original(self, sums_K) / self.world_size
    return averaged


def padded_with_duplicates(original: Any, teacher: Any, student: Any, batches: Any, *rest: Any, **named: Any) -> Any:
    filled = [batch if (batch.labels[:, 1:] != -100).any() else batches[0] for batch in batches]
    return original(teacher, student, filled, *rest, **named)


def part_of_rank_0(original: Any, module: Any, device: Any) -> None:
    with mock.patch("torch.distributed.device_mesh.DeviceMesh.get_local_rank", lambda *_: 0):
        original(module, device)


def whole_loaded_by_all(original: Any, module: Any, device: Any) -> None:
    with mock.patch.object(Tensor, "to", lambda tensor, *_, **__: tensor):
        original(module, device)


def buffers_not_loaded(original: Any, module: Any, device: Any) -> None:
    with mock.patch.object(Tensor, "copy_", lambda tensor, *_, **__: tensor):
        original(module, device)


def any_file_fits(original: Any, make: Any, files: Any) -> Any:
    with torch.device("meta"):
        module = make()
    set_weights(module, files)
    return module


def gathered_in_float32(original: Any, module: Any, device: Any, dtype: str = "float32") -> Any:
    return original(module, device)


def summed_in_bfloat16(original: Any, module: Any, device: Any, dtype: str = "float32") -> Any:
    policy = fsdp.MixedPrecisionPolicy
    with mock.patch.object(fsdp, "MixedPrecisionPolicy", lambda param_dtype=None, **_: policy(param_dtype=param_dtype)):
        return original(module, device, dtype)
