"""Load a model shard by shard: every rank reads its part of each tensor, so that no rank ever holds the whole model.

1. `skeleton` creates a module whose parameters have shapes but no memory, and stores the locations of the weights in
   files.
2. `ranks.parallel.shard` divides the parameters by FSDP2 and calls `load_shards`, which reads the part of this rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import EllipsisType
from typing import TypeVar

import torch
from safetensors import safe_open
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in safetensors files. Indexing reads rows: `tensor[begin:end]`, or `tensor[...]` for the whole tensor.

    Attributes:
        pieces: The file and the name of each stored tensor; the tensors are joined along the first axis.
        dtype: The data type to which the values are converted after reading.
        shape: The shape of the whole tensor.
    """

    pieces: tuple[tuple[Path, str], ...]
    dtype: torch.dtype
    shape: torch.Size

    def __getitem__(self, rows: slice | EllipsisType) -> Tensor:
        parts, first = [], 0
        for path, name in self.pieces:
            with safe_open(path, framework="pt") as file:
                stored = file.get_slice(name)
                if not isinstance(rows, slice):
                    parts.append(stored[:] if self.shape else stored[...])
                    continue
                # The piece has the rows from `first` to `first + size` of the whole tensor.
                size = stored.get_shape()[0]
                begin, end = max(rows.start, first), min(rows.stop, first + size)
                if begin < end or len(self.pieces) == 1:
                    parts.append(stored[begin - first : end - first])
                first += size
        if not parts:
            return torch.empty(0, *self.shape[1:], dtype=self.dtype)
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).to(self.dtype)

    def dim(self) -> int:
        return len(self.shape)


NamedTensors = Mapping[str, Tensor | StoredTensor]
"""Tensors by name, in memory or in files."""


def weight_files(paths: Iterable[Path], prefix: str = "") -> dict[str, StoredTensor]:
    """Return the tensors in safetensors files, by name.

    Args:
        paths: Safetensors files.
        prefix: A text to put before every name: "model." for the weights of the attribute `model` of a module.

    Raises:
        OSError: If a file cannot be read.
        SafetensorError: If a file is damaged.
    """
    tensors: dict[str, StoredTensor] = {}
    for path in paths:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():
                stored = file.get_slice(name)
                shape = torch.Size(stored.get_shape())
                dtype = (stored[:0] if shape else stored[...]).dtype
                tensors[prefix + name] = StoredTensor(((path, name),), dtype, shape)
    return tensors


def join_parts(parts: Sequence[Tensor | StoredTensor]) -> Tensor | StoredTensor:
    """Return `parts` joined along the first axis.

    Args:
        parts: Tensors that are all in memory or all in files, with the same dtype, and the same shape except the first
            axis.
    """
    stored = [part for part in parts if isinstance(part, StoredTensor)]
    if not stored:
        return torch.cat([part[...] for part in parts])
    pieces = tuple(piece for part in stored for piece in part.pieces)
    rows = sum(part.shape[0] for part in stored)
    return StoredTensor(pieces, stored[0].dtype, torch.Size([rows, *stored[0].shape[1:]]))


def skeleton(make: Callable[[], Module], files: NamedTensors) -> Module | None:
    """Return the module that `make` creates, with parameters on the meta device, which takes no memory.

    Buffers keep their values in memory, because files do not contain all buffers.

    Args:
        make: Creates the module.
        files: The weights, by their names in the module. `load_shards` reads them later.

    Returns:
        The module; None if a parameter is missing in the files or has another shape there, as for models whose tensors
        transformers converts when it loads them.
    """
    with _parameters_on_meta():
        module = make()
    names_by_parameter: dict[nn.Parameter, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names_by_parameter.setdefault(parameter, []).append(name)
    # Files have a tied weight under one of its names; store it under all of them.
    weights = dict(files)
    for parameter, names in names_by_parameter.items():
        stored = next((files[name] for name in names if name in files), None)
        if stored is None or stored.shape != parameter.shape:
            return None
        weights |= dict.fromkeys(names, stored)
    set_weights(module, weights)
    return module


def is_skeleton(module: nn.Module) -> bool:
    """Return whether the module has parameters whose weights are not loaded yet."""
    return any(parameter.is_meta for parameter in module.parameters())


def set_weights(module: nn.Module, weights: NamedTensors) -> None:
    """Store the weights that `load_shards` will load into a skeleton, by their names in the module.

    For other names, weights that were stored before stay stored.
    """
    # Every submodule stores the weights of its own parameters, since adapters and FSDP2 may rename or copy parameters.
    for prefix, child in module.named_modules(remove_duplicate=False):
        for key in (*child._parameters, *child._buffers):
            name = f"{prefix}.{key}" if prefix else key
            if name in weights:
                child.stored_weights = {**_stored(child), key: weights[name]}


def _stored(child: nn.Module) -> Mapping[str, Tensor | StoredTensor]:
    """Return the weights that `set_weights` has stored in a submodule, by the names of its parameters and buffers."""
    stored: Mapping[str, Tensor | StoredTensor] = child.__dict__.get("stored_weights", {})
    return stored


def weights_of(module: nn.Module) -> dict[str, Tensor | StoredTensor]:
    """Return all parameters and persistent buffers by name; for a skeleton, the stored weights where it has them."""
    weights: dict[str, Tensor | StoredTensor] = dict(module.named_parameters(remove_duplicate=False))
    weights |= module.state_dict()
    if is_skeleton(module):
        for name, like in tuple(weights.items()):
            prefix, _, key = name.rpartition(".")
            stored = _stored(module.get_submodule(prefix)).get(key)
            if isinstance(stored, StoredTensor):
                weights[name] = replace(stored, dtype=like.dtype)
            elif stored is not None:
                weights[name] = stored.to(like.dtype)
    return weights


def when_loaded(module: nn.Module, action: Callable[[], object]) -> None:
    """Call `action`, which needs the weights of the module: now or, for a skeleton, after its weights are loaded."""
    if is_skeleton(module):
        pending: list[Callable[[], object]] = module.__dict__.get("pending", [])
        module.pending = [*pending, action]  # type: ignore[assignment]  # mypy expects a tensor or module
    else:
        action()


def lend_memory(module: nn.Module) -> None:
    """Replace every parameter with stored weights by NaNs on the CPU until `return_memory` is called.

    Code that adds adapters reads the device and the data type of the weights. If this code also computes with the
    weights, the results are NaN, which `return_memory` detects.
    """
    # A single NaN, expanded to the shape of the weight, takes the memory of one number.
    _replace_stored(module, lambda old: torch.full((), torch.nan, dtype=old.dtype).expand(old.shape))


def return_memory(module: nn.Module) -> bool:
    """After `lend_memory`, move the parameters of a skeleton, and copies of them, to the meta device again.

    Returns:
        Whether the other parameters are usable: False if one of them contains NaN, since it was computed from weights.
    """
    _replace_stored(module, lambda old: old.to("meta"))
    return not any(parameter.isnan().any() for parameter in module.parameters() if not parameter.is_meta)


def _replace_stored(module: nn.Module, replacement: Callable[[nn.Parameter], Tensor]) -> None:
    """Replace all parameters with stored weights; a tied weight stays one object."""
    replaced: dict[nn.Parameter, nn.Parameter] = {}
    for child in module.modules():
        for key in _stored(child).keys() & child._parameters.keys():
            old = child._parameters[key]
            if old is not None:
                if old not in replaced:
                    replaced[old] = nn.Parameter(replacement(old), requires_grad=old.requires_grad)
                child._parameters[key] = replaced[old]


def load_shards(module: nn.Module, device: torch.device) -> None:
    """Load this rank's part of every parameter of a skeleton; then call the actions of `when_loaded`.

    Args:
        module: A skeleton that FSDP2 has divided among the ranks. A weight is converted to the dtype of its parameter.
        device: The device of the loaded parts and of the buffers.
    """
    from torch.distributed.tensor import DTensor

    # 1. Parameters. A tied weight has several owners.
    owners_by_parameter: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
    for child in module.modules():
        for key, parameter in child._parameters.items():
            if parameter is not None and parameter.is_meta:
                owners_by_parameter.setdefault(parameter, []).append((child, key))
    for divided, owners in owners_by_parameter.items():
        stored = next(_stored(child)[key] for child, key in owners if key in _stored(child))
        assert isinstance(divided, DTensor)
        # FSDP2 divides the first dimension as torch.chunk does: the last ranks may have fewer rows, or none.
        mesh, rows = divided.device_mesh, divided.shape[0]
        size = -(-rows // mesh.size())
        begin = min(mesh.get_local_rank() * size, rows)
        part = stored[begin : min(begin + size, rows)]
        local = part.to(device, divided.dtype, copy=True)  # a view would keep the whole stored tensor mapped
        shape, stride = divided.shape, divided.stride()
        shard = DTensor.from_local(local, mesh, divided.placements, run_check=False, shape=shape, stride=stride)
        # One parameter for all names of a tied weight, so that it stays tied.
        loaded = nn.Parameter(shard, requires_grad=divided.requires_grad)
        for child, key in owners:
            child._parameters[key] = loaded
    # 2. Buffers, which are not divided.
    for child in module.modules():
        for name, buffer in child._buffers.items():
            if buffer is not None:
                if name in _stored(child):
                    buffer.copy_(_stored(child)[name][...])
                child._buffers[name] = buffer.to(device)
        child.__dict__.pop("stored_weights", None)
    # 3. The actions of `when_loaded`.
    for action in module.__dict__.pop("pending", []):
        action()


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Move every parameter that a module registers inside the context to the meta device."""
    # The context `torch.device("meta")` would also lose the values of buffers, which files do not contain.
    register = nn.Module.register_parameter

    def register_on_meta(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if param is not None and not param.is_meta:  # a tied parameter is registered again, and stays the same object
            param = nn.Parameter(param.to("meta"), requires_grad=param.requires_grad)
        register(module, name, param)

    nn.Module.register_parameter = register_on_meta  # type: ignore[method-assign, assignment]  # there is no hook
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]  # restored
