"""Facts about data sets: readable and stored examples, hashes of rows, and states of random generators.

No function of this module calls the `__getitem__` of a data set, except of a list or tuple, because such a call may
draw random numbers. The functions read the attributes of a data set instead.
"""

from __future__ import annotations

import base64
import functools
import os
import pickle
import random
import sys
import types
import zlib
from collections.abc import Iterator
from typing import Any, Optional

import torch
from torch import Tensor
from torch.utils import data

COLUMNS = 64
"""Largest number of elements of a row of floats that are hashed. Of a row of integers, `4 * COLUMNS` are hashed."""
WRAPPERS = ("torch.utils.data.", "accelerate.", "lightning.", "pytorch_lightning.", "transformers.")
"""Prefixes of modules whose samplers keep the order of a wrapped sampler."""
MAX_EXAMPLES = 4_000_000
"""Largest number of examples of a data set; for more, `readable` returns None."""
SPLITMIX = (-7046029254386353131, -4658895280553007687)
"""Constants 0x9e3779b97f4a7c15 and 0xbf58476d1ce4e5b9 of splitmix64 (Steele, Lea, Flood 2014), as signed integers."""


def base_of(dataset: object) -> tuple[object, Optional[Tensor]]:
    """Return the data set inside nested subsets, and the indices of the outermost subset in this data set.

    The indices are None if the argument is not a subset.
    """
    indices: Optional[Tensor] = None
    while isinstance(dataset, data.Subset):
        inner = torch.as_tensor(dataset.indices, dtype=torch.long)
        indices = inner if indices is None else inner[indices]
        dataset = dataset.dataset
    return dataset, indices


def size_of(dataset: Any) -> Optional[int]:
    """Return the number of examples of a data set; None if the data set has no length."""
    try:
        return len(dataset)
    except Exception:  # `__len__` is code of the script, which may raise anything
        return None


def sampler_of(loader: Any) -> object:
    """Return the sampler of a loader that determines the order of the examples.

    At most four batch samplers and wrappers, of the modules in `WRAPPERS`, are removed.
    """
    sampler = loader.batch_sampler if getattr(loader, "batch_sampler", None) is not None else loader.sampler
    for _ in range(4):
        inner = getattr(sampler, "batch_sampler", getattr(sampler, "sampler", None))
        if inner is None or not type(sampler).__module__.startswith(WRAPPERS):
            break  # a sampler of the script may change the order of the sampler that it contains
        sampler = inner
    return sampler


def is_random(sampler: object) -> Optional[bool]:
    """Return whether the order of a sampler is random; None if the class is unknown and `shuffle` is not False."""
    if isinstance(sampler, data.DistributedSampler):
        return bool(sampler.shuffle)
    if getattr(sampler, "shuffle", None) is False:
        return False
    if isinstance(sampler, (data.RandomSampler, data.SubsetRandomSampler, data.WeightedRandomSampler)):
        return True
    return False if type(sampler) is data.SequentialSampler else None


def readable(loader: Any) -> Optional[str]:
    """Return which examples of the base data set a loader can read: "all" or a `bitmap`; None if unknown."""
    base, indices = base_of(loader.dataset)
    sampler = sampler_of(loader)
    size = size_of(base)
    if is_random(sampler) is None or size is None or not 0 < size <= MAX_EXAMPLES:
        return None
    positions = None  # indices in the data set of the loader, which may be a subset of the base data set
    if isinstance(sampler, data.SubsetRandomSampler):
        positions = torch.as_tensor(list(sampler.indices), dtype=torch.long)
    elif isinstance(sampler, data.WeightedRandomSampler):
        positions = sampler.weights.nonzero().flatten().cpu()
    if positions is not None:
        indices = positions if indices is None else indices[positions]
    return "all" if indices is None else bitmap(indices, size)


def bitmap(indices: Tensor, size: int) -> str:
    """Return a base64-encoded bitmap of `size` bits in which the bits of the indices are set, lowest bit first."""
    # Shifts pack the bits, because torch has no `packbits`, and NumPy may not be installed.
    bits = torch.zeros(-(-size // 8) * 8, dtype=torch.uint8)
    bits[indices] = 1
    packed = (bits.view(-1, 8) << torch.arange(8, dtype=torch.uint8)).sum(1, dtype=torch.uint8)
    return base64.b64encode(bytes(packed.tolist())).decode()


@functools.lru_cache(maxsize=64)
def _factors(count: int) -> Tensor:
    """Return pseudo-random odd integers, [count], without a random generator."""
    # The steps of splitmix64 on 64-bit integers, whose products overflow as intended.
    numbers = torch.arange(1, count + 1) * SPLITMIX[0]
    return (numbers ^ (numbers >> 29)) * SPLITMIX[1] | 1


def row_tensor(tensors: list[Tensor]) -> Optional[Tensor]:
    """Return the tensor of a batch that is probably the input of the model; None if no tensor is usable.

    This tensor is the first with two or more dimensions, else the first tensor. Only dense CPU tensors with
    dimensions and elements that are neither complex nor boolean are usable.
    """
    usable = [t for t in tensors if t.layout == torch.strided and t.dim() and t.numel() and not t.dtype.is_complex]
    usable = [t for t in usable if t.device.type == "cpu" and t.dtype != torch.bool]
    return next((t for t in usable if t.dim() > 1), usable[0] if usable else None)


def columns(rows: Tensor) -> Tensor:
    """Return a copy of some columns of a tensor as integers, for `row_hashes`.

    For floats, the copy has the bits of evenly spaced columns. For integers, such as tokens, it has the first columns.
    """
    flat = rows.detach().reshape(rows.shape[0], -1)
    if flat.is_floating_point():
        return flat[:, :: -(-flat.shape[1] // COLUMNS)].to(torch.float32, copy=True).contiguous().view(torch.int32)
    return flat[:, : 4 * COLUMNS].clone()


def row_hashes(batches: list[Tensor]) -> list[list[int]]:
    """Return 48-bit hashes of rows. The arguments are results of `columns`; every result gets a list of hashes.

    Zeros at the end of a row, such as padding, do not change its hash.
    """
    if not batches:
        return []
    width = max(part.shape[1] for part in batches)
    if any(part.shape[1] != width for part in batches):
        batches = [torch.nn.functional.pad(part, (0, width - part.shape[1])) for part in batches]
    # 1. Multiply the elements of every row by fixed factors, and add the products. The sums are sums of integers,
    #    because sums of floats could depend on the shape of the batch. 2. Mix the bits of every sum, and keep the upper
    #    48 bits.
    sums = (torch.cat(batches).long() * _factors(width)).sum(1)
    sums = (sums ^ (sums >> 31)) * SPLITMIX[1]
    hashes = iter(((sums >> 16) & ((1 << 48) - 1)).tolist())
    return [[next(hashes) for _ in part] for part in batches]


def label_tensor(tensors: list[Tensor], count: int) -> Optional[Tensor]:
    """Return the last tensor that has one integer per example; None if there is none, or if it is not on the CPU."""
    labels = [t for t in tensors if t.dtype in (torch.long, torch.int) and t.dim() == 1 and t.shape[0] == count]
    return labels[-1] if labels and labels[-1].device.type == "cpu" else None


def stored_row(dataset: object, index: int, depth: int = 0) -> list[Any]:
    """Return views of the tensors and arrays in which a data set stores an example; [] if none are found.

    The example is searched in attributes that have as many elements as the data set, and in dictionaries that may be a
    cache of examples.

    Args:
        dataset: The data set.
        index: The index of the example.
        depth: Nesting depth: the number of data sets around this data set.
    """
    if isinstance(dataset, data.Subset):
        return stored_row(dataset.dataset, int(dataset.indices[index]), depth)
    if isinstance(dataset, (list, tuple)):
        return list(_arrays(dataset[index]))[:4]
    size, rows = size_of(dataset), []
    if size is None or depth > 2:
        return []
    attributes = list(getattr(dataset, "__dict__", {}).values())
    # The elements of lists at this index. One of these elements may be a file name that is the key of a cache.
    names = [value[index] for value in attributes if isinstance(value, (list, tuple)) and len(value) == size]
    for value in attributes:
        if isinstance(value, data.Dataset):
            rows += stored_row(value, index, depth + 1) if size_of(value) == size else []
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], Tensor) and len(value[0]) == size:
            rows += [part[index] for part in value if part.dim() and len(part) == size]  # such as in a TensorDataset
        elif (_is_array(value) and len(value.shape) > 0 and len(value) == size) or (
            isinstance(value, list) and len(value) == size
        ):
            rows += list(_arrays(value[index]))
        elif isinstance(value, dict) and 4 * len(value) >= size:  # a cache by index or name
            for key in (index, *(name for name in names if isinstance(name, (str, os.PathLike)))):
                rows += list(_arrays(dict.get(value, key)))
    return [row for row in rows if len(row.shape)][:4]


def _is_array(value: object) -> bool:
    """Return whether a value is a tensor or a NumPy array. NumPy is not imported."""
    return isinstance(value, Tensor) or (type(value).__module__ == "numpy" and type(value).__name__ == "ndarray")


def _arrays(value: object) -> Iterator[object]:
    """Yield the value if it is a tensor or an array, or the tensors and arrays among its first eight elements."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
    yield from (part for part in list(parts)[:8] if _is_array(part))


def sum_of(row: Any) -> float:
    """Return the sum of the elements of a tensor or an array."""
    return float(row.detach().double().sum()) if isinstance(row, Tensor) else float(row.sum(dtype="float64"))


def removed_columns(dataset: Any) -> dict[str, set[float]]:
    """Return the numeric columns that `transformers.Trainer` has removed from a data set of the package `datasets`.

    The original data set is an attribute of the Trainer. The Trainer is searched on the stack: it is the `self` of a
    method that called this function directly or indirectly.

    Returns:
        The distinct values among the first 64 values of a column, by name of the column.
    """
    trainer = getattr(sys.modules.get("transformers.trainer"), "Trainer", None)
    removed: dict[str, set[float]] = {}
    if trainer is None or not type(dataset).__module__.startswith("datasets."):
        return removed
    frame: Optional[types.FrameType] = sys._getframe(1)
    while frame is not None and not isinstance(frame.f_locals.get("self"), trainer):
        frame = frame.f_back
    caller = frame.f_locals["self"] if frame is not None else None
    originals: list[Any] = [getattr(caller, "train_dataset", None), getattr(caller, "eval_dataset", None)]
    for original in originals:
        if type(original) is not type(dataset) or not hasattr(original, "data") or len(original) != len(dataset):
            continue
        for name in set(original.column_names) - set(dataset.column_names):
            values = original.data.column(name).slice(0, 64).to_pylist()
            if values and all(isinstance(value, (int, float)) for value in values):
                removed[name] = {float(value) for value in values}
    return removed


def generator_states(dataset: object) -> dict[str, int]:
    """Return hashes of the states of all random generators that a data set may use, by name of the generator.

    The generators are: the global generators of `random`, NumPy and torch; generators in attributes of the data set and
    of objects in the data set, such as transforms; and generators in global variables that methods of these objects
    use.
    """
    states = {"random": random.getstate(), "torch": torch.get_rng_state()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        states["numpy.random"] = numpy.random.get_state()
    for name, generator in _generators_in(dataset, type(dataset).__name__, 0, set()):
        states[name] = _state(generator)
    return {name: _hash(state) for name, state in states.items()}


def used_generators() -> list[str]:
    """Return the names of the global generators that have drawn numbers since they were seeded.

    A Mersenne Twister computes its numbers in blocks of 624. Seeding marks the first block as used up: the position in
    the state is 624, or in torch, the number of remaining numbers is 1. The first draw then computes a new block.
    """
    numpy = sys.modules.get("numpy")
    left = int(torch.get_rng_state()[8:12].view(torch.int32))  # bytes 0 to 7 are the seed
    used = {
        "random": random.getstate()[1][-1] != 624,
        "torch": left != 1,
        "numpy.random": numpy is not None and numpy.random.get_state()[2] != 624,
    }
    return [name for name, is_used in used.items() if is_used]


def _hash(state: object) -> int:
    """Return a 32-bit hash of the state of a generator."""
    return zlib.crc32(bytes(state.tolist()) if isinstance(state, Tensor) else pickle.dumps(state))


def _state(value: object) -> Any:
    """Return the state of a random generator; None for any other object."""
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, torch.Generator):
        return value.get_state()
    if type(value).__module__.startswith("numpy.random"):
        bits = getattr(value, "bit_generator", None)
        return value.get_state() if hasattr(value, "get_state") else getattr(bits, "state", None)
    return None


def _generators_in(value: object, name: str, depth: int, seen: set[int]) -> Iterator[tuple[str, object]]:
    """Yield the random generators that an object contains or uses, with their names.

    Args:
        value: The object.
        name: The class of the data set and the names of the attributes that lead to the object, or a global variable.
        depth: Nesting depth: the number of objects around this object.
        seen: Ids of the objects that were searched before.
    """
    # The limits of 300 objects and of the depth are for data sets that refer to many objects.
    if id(value) in seen or len(seen) > 300:
        return
    seen.add(id(value))
    if _state(value) is not None:
        yield name, value
        return
    if depth > 4 or isinstance(value, (Tensor, str, bytes, type, types.ModuleType)):
        return
    if isinstance(value, (list, tuple, dict)):
        parts = list(value.values() if isinstance(value, dict) else value[:8])[:20]
        if parts and not isinstance(parts[0], (int, float, str, Tensor)):
            for part in parts:
                yield from _generators_in(part, name, depth + 1, seen)
        return
    function = getattr(value, "__func__", value)
    methods = [function] if isinstance(function, types.FunctionType) else [*vars(type(value)).values()]
    # The code of a method contains the names of global variables that it uses, such as `rng`.
    for method in methods:
        if isinstance(method, types.FunctionType):
            for variable in method.__code__.co_names:
                if _state(method.__globals__.get(variable)) is not None:
                    yield from _generators_in(method.__globals__[variable], variable, depth + 1, seen)
    for attribute, part in list(getattr(value, "__dict__", {}).items()):
        yield from _generators_in(part, f"{name}.{attribute}", depth + 1, seen)


class StoredRows:
    """The stored examples at the first two indices of a batch, to detect that reading the batch changes them.

    Create this object before the batch is read, and call `compare` afterwards.

    Args:
        dataset: The data set of the loader.
        indices: The indices of the batch.
    """

    def __init__(self, dataset: object, indices: object) -> None:
        self._rows: list[tuple[int, object, float]] = []
        """Position in the batch, stored tensor or array, and sum of its elements."""
        for position, index in enumerate(indices[:2] if isinstance(indices, list) else []):
            for row in stored_row(dataset, int(index)):
                self._rows.append((position, row, sum_of(row)))

    def compare(self, batch: list[Tensor]) -> tuple[int, int]:
        """Return the number of compared tensors, and the number of tensors that changed and are in the batch.

        Args:
            batch: The tensors of the batch that was read.
        """
        inputs = row_tensor(batch)
        changed = 0
        for position, row, before in self._rows:
            # A changed tensor that is not in the batch is no mistake: it may be a counter or a cache of the data set.
            after = sum_of(row)
            if after != before and inputs is not None and position < len(inputs):
                same_sum = abs(sum_of(inputs[position]) - after) <= 1e-5 * (1 + abs(after))
                tensors = [t for t in batch if t.dim() > 1 and len(t) == len(inputs) and t.device.type == "cpu"]
                changed += same_sum or any(_shares_values(row, tensor[position]) for tensor in tensors)
        return len(self._rows), changed


def _shares_values(stored_row: object, batch_row: Tensor) -> bool:
    """Return whether at least a quarter of the elements of a stored row are nonzero and the same in a row of the batch.

    The other elements may be masked in the batch. False for rows of integers, and for rows of fewer than four elements.
    """
    stored, read = torch.as_tensor(stored_row).detach().reshape(-1), batch_row.detach().reshape(-1)
    if len(stored) != len(read) or len(stored) < 4 or not (stored.is_floating_point() and read.is_floating_point()):
        return False
    return bool((stored.to(read.dtype).eq(read) & stored.ne(0)).double().mean() >= 0.25)
