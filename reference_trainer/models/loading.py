"""Load a model shard by shard: every rank reads its part of each tensor, so that no rank ever holds the whole model.

1. `skeleton` creates a module whose parameters have shapes but no memory, and stores which files have their weights.
2. `ranks.parallel.shard` divides the parameters by FSDP2 and calls `load_shards`, which reads the part of this rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """The safetensors files of the weights of a module.

    Attributes:
        files: The file of each tensor, by the name of the tensor in the file.
        prefix: What the name of a parameter in the module has before its name in the file.
    """

    files: Mapping[str, Path]
    prefix: str = ""

    def holds(self, name: str) -> bool:
        """Return whether a file has the tensor that the module calls `name`."""
        return self._stored(name) in self.files

    def _stored(self, name: str) -> str:
        return name.removeprefix(self.prefix)

    def opened(self, name: str) -> Any:
        """Return a `PySafeSlice` of the tensor that the module calls `name`, of which indexing reads a part."""
        stored = self._stored(name)
        with safe_open(self.files[stored], framework="pt") as file:
            return file.get_slice(stored)


def weight_files(paths: Iterable[Path], prefix: str = "") -> WeightFiles:
    """Return which of the files has which tensor.

    Args:
        paths: Safetensors files.
        prefix: As in `WeightFiles`.

    Raises:
        OSError: If a file cannot be read.
        SafetensorError: If a file is damaged.
    """
    files: dict[str, Path] = {}
    for path in paths:
        with safe_open(path, framework="pt") as file:
            files |= dict.fromkeys(file.keys(), path)
    return WeightFiles(files, prefix)


def skeleton(make: Callable[[], Module], files: WeightFiles) -> Module | None:
    """Return the module that `make` creates, with parameters on the meta device, which takes no memory.

    Buffers have their values, because files do not contain all of them.

    Args:
        make: Creates the module.
        files: The weights, which `load_shards` reads later.

    Returns:
        The module, or None if the files lack one of its parameters or have it in another shape. That is so for models
        whose tensors transformers converts when it loads them.
    """
    with _parameters_on_meta():
        module = make()
    for group in _shared(module):
        held = [name for name, _ in group if files.holds(name)]
        if not held or files.opened(held[0]).get_shape() != list(group[0][1].shape):
            return None
    module.weight_files = files  # type: ignore[assignment]  # no tensor or module
    return module


def is_skeleton(module: nn.Module) -> bool:
    """Return whether the module has parameters whose weights are not loaded yet."""
    return any(parameter.is_meta for parameter in module.parameters())


def load_shards(module: nn.Module, device: torch.device) -> None:
    """Load this rank's part of each parameter of a skeleton that FSDP2 has divided.

    Args:
        module: A module of `skeleton`, divided over the mesh of FSDP2; weights are converted to its data types.
        device: The device of the loaded parts and of the buffers.
    """
    from torch.distributed.tensor import DTensor

    files: Any = module.weight_files
    state: dict[str, Tensor] = {}
    for group in _shared(module):
        name = next(name for name, _ in group if files.holds(name))
        divided: Any = group[0][1]
        # FSDP2 divides the first dimension as torch.chunk does: the last ranks may have less, or nothing.
        mesh, rows = divided.device_mesh, divided.shape[0]
        size = -(-rows // mesh.size())
        begin = min(mesh.get_local_rank() * size, rows)
        part = files.opened(name)[begin : min(begin + size, rows)]
        whole = {"shape": divided.shape, "stride": divided.stride()}
        local = part.to(device, divided.dtype, copy=True)  # a view would keep the mapping of the whole tensor
        shard = DTensor.from_local(local, mesh, divided.placements, run_check=False, **whole)
        # One parameter for all names of a tied weight, so that it stays tied.
        loaded = nn.Parameter(shard, requires_grad=divided.requires_grad)
        state |= {name: loaded for name, _ in group}
    for name, buffer in module.named_buffers():
        if files.holds(name):
            buffer.copy_(files.opened(name)[:] if buffer.dim() else files.opened(name)[...])
    module.load_state_dict(state, strict=False, assign=True)
    for child in module.modules():
        for name, held in child._buffers.items():
            child._buffers[name] = None if held is None else held.to(device)


def _shared(module: nn.Module) -> list[list[tuple[str, nn.Parameter]]]:
    """Return the parameters with their names, those of a tied weight together."""
    groups: dict[int, list[tuple[str, nn.Parameter]]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append((name, parameter))
    return list(groups.values())


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Create parameters on the meta device, one by one; `torch.device("meta")` would lose the values of buffers."""
    register = nn.Module.register_parameter

    def register_on_meta(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if param is not None and not param.is_meta:  # one that is tied stays the same object
            param = nn.Parameter(param.to("meta"), requires_grad=param.requires_grad)
        register(module, name, param)

    nn.Module.register_parameter = register_on_meta  # type: ignore[method-assign, assignment]  # no hook
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]  # as above
