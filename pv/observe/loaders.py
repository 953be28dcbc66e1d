"""Records the passes over data loaders, the examples and their order in a pass, and the loader of every batch."""

from __future__ import annotations

import atexit
import functools
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import data
from torch.utils.data import dataloader
from torch.utils.data._utils import fetch

from . import datasets, frames, tokens, workers
from .trace import Late

if TYPE_CHECKING:
    from .observer import Observer

Loader = data.DataLoader[Any]
Function = Callable[..., Any]

GROUPED_BATCHES = 16
"""Number of batches whose rows are hashed together, which is ten times as fast as one call per batch."""
EXAMINED_BATCHES = 4
"""Number of batches at the beginning of a pass in which stored examples and removed columns are examined."""
LABELLED_PASSES = 2
"""Number of first passes over a loader in which labels are read."""
LABELLED_BATCHES = 2000
"""Largest number of batches of a pass whose labels are read."""
COMPARED_BATCHES = 32
"""Number of batches at the beginning of a pass whose content is hashed."""
LISTED_ROWS = 60_000
"""Largest number of rows in a list of the rows of a pass. A pass with more rows has no list."""
SCALED_CALLS = 6
"""Number of first calls of a model, with and without gradients each, whose input statistics are recorded."""
COUNTED_INDICES = 200_000
"""Largest number of distinct indices of a pass that are counted, if it is unknown whether the order is random."""
SAMPLED_ROWS = 4096
"""Expected largest number of row hashes in an event. Of more, only hashes divisible by a power of 2 are written."""


class PassState:
    """The recorded state of one pass over a loader.

    Args:
        loader: The number of the loader.
        index: The number of the pass over this loader, from 1.
        random: Whether the order is random; None if unknown.
        listed: Whether all rows are listed.
    """

    def __init__(self, loader: int, index: int, random: Optional[bool], *, listed: bool) -> None:
        self.loader, self.index, self.random = loader, index, random
        self.batches = self.rows = 0
        """Number of delivered batches, and number of delivered rows."""
        self.drawn_indices: deque[Optional[list[int]]] = deque()
        """The indices of batches that were drawn but not delivered yet; None for a batch without indices."""
        self.order: Optional[int] = 0
        """Hash of the indices of all delivered batches, in their order; None if a batch had no indices."""
        self.indices: set[int] = set()
        """The distinct indices of the delivered batches, if it is unknown whether the order is random."""
        self.content: Optional[int] = None
        """Hash of the rows of the first batches, in their order; None if no batch was hashed."""
        self._compared_batches = 0
        """Number of batches in `content`."""
        self.row_hashes: Optional[list[int]] = [] if listed else None
        """Hashes of all hashed rows; None if rows are not listed, or if there are more than `LISTED_ROWS`."""
        self._waiting: list[Tensor] = []
        """Copies of the rows that are not hashed yet."""
        self.labels: list[tuple[int, int]] = []
        """The smallest and the largest label of every batch, if the order is not random."""
        self.stored = [0, 0]
        """Number of stored examples that were compared before and after a read, and number of changed examples."""
        self.is_whole = self.draws = False
        """Whether all batches were delivered; whether the sampler has called `torch.randperm`."""
        self.removed_columns: dict[str, set[float]] = {}
        """The columns that a library removed before the collator, and some values of each column, of all passes."""

    def take(self, batch: list[Tensor]) -> None:
        """Record a delivered batch."""
        self.batches += 1
        indices = self.drawn_indices.popleft() if self.drawn_indices else None
        if indices is None or self.order is None:
            self.order = None
        else:
            self.order = hash((self.order, *indices))
            if self.random is None and len(self.indices) < COUNTED_INDICES:
                self.indices.update(indices)
        # To save time, rows are hashed only in two cases: all rows of the first pass of a line over a data set, which
        # are listed, and the first batches of the first four passes over a loader, whose orders are compared.
        is_compared = self.batches <= COMPARED_BATCHES and self.index <= 4
        is_hashed = self.row_hashes is not None or is_compared
        inputs = datasets.row_tensor(batch) if is_hashed or indices is None else None
        self.rows += len(indices) if indices is not None else 0 if inputs is None else inputs.shape[0]
        if inputs is not None and is_hashed:
            self._waiting.append(datasets.columns(inputs))
            if len(self._waiting) == GROUPED_BATCHES:
                self._hash_rows()
        has_labels = self.random is False and self.index <= LABELLED_PASSES and len(self.labels) < LABELLED_BATCHES
        if has_labels and indices:
            labels = datasets.label_tensor(batch, len(indices))
            if labels is not None:
                self.labels.append((int(labels.min()), int(labels.max())))

    def _hash_rows(self) -> None:
        """Hash the waiting rows, and add them to `content` and `row_hashes`."""
        waiting, self._waiting = self._waiting, []
        for hashes in datasets.row_hashes(waiting):
            if self._compared_batches < COMPARED_BATCHES:
                self._compared_batches += 1
                self.content = hash((self.content or 0, *hashes))
            if self.row_hashes is not None:
                self.row_hashes += hashes
                if len(self.row_hashes) > LISTED_ROWS:
                    self.row_hashes = None

    def summary(self) -> dict[str, object]:
        """Return the fields of the event that ends the pass."""
        self._hash_rows()
        pairs = list(zip(self.labels, self.labels[1:]))
        labels = {
            "batches": len(self.labels),
            "one_label": sum(low == high for low, high in self.labels),
            "distinct": len({label for low_and_high in self.labels for label in low_and_high}),
            "sorted": all(a[1] <= b[0] for a, b in pairs) or all(a[0] >= b[1] for a, b in pairs),
        }
        return {
            "batches": self.batches,
            "rows": self.rows,
            "order": self.order if self.rows else None,
            "distinct": len(self.indices) if self.indices and self.order is not None else None,
            "content": self.content,
            "labels": labels if self.labels else None,
            "stored": self.stored,
            "draws": self.draws,
        }

    def sampled_rows(self) -> Optional[dict[str, object]]:
        """Return the fields of the event that lists the rows of a complete pass.

        Returns:
            divisor: Only hashes divisible by this number are returned.
            count: The number of rows of the pass.
            prints: The hashes.
            The result is None if the rows are not listed.
        """
        self._hash_rows()
        hashes = self.row_hashes
        if not hashes:
            return None
        # Hashes are selected by value, not by position, so that two loaders with the same rows in different orders have
        # the same sample.
        divisor = 1
        while len(hashes) > SAMPLED_ROWS * divisor:
            divisor *= 2
        return {"divisor": divisor, "count": len(hashes), "prints": [n for n in hashes if n % divisor == 0]}


def _identity(value: object) -> object:
    """Return the argument. Partial calls of this function replace weak references."""
    return value


class DatasetNumbers:
    """Assigns numbers to data sets. Different data sets have different numbers, even if Python reuses an address."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[Callable[[], object], int]] = {}
        """The reference to a data set, and its number, by id of the data set."""

    def of(self, dataset: object, new: Callable[[], int]) -> int:
        """Return the number of a data set. A new data set gets the number that `new` returns."""
        reference, number = self._by_id.get(id(dataset), (lambda: None, 0))
        if reference() is not dataset:
            number = new()
            try:
                reference = weakref.ref(dataset)
            except TypeError:  # a list, for example: keep it alive, so that its address is not reused
                reference = functools.partial(_identity, dataset)
            self._by_id[id(dataset)] = (reference, number)
        return number


class LoaderRecord:
    """The recorded state of one data loader.

    Attributes:
        number: The number of the loader in the trace.
        passes: Number of passes over the loader that have begun.
        removed_columns: The columns that a library removed before the collator, and some values of each column.
        last_pass: The last pass; None before the first pass.
    """

    def __init__(self, number: int, removed_columns: dict[str, set[float]]) -> None:
        self.number = number
        self.removed_columns = removed_columns
        self.passes = 0
        self.last_pass: Optional[PassState] = None


class LoaderHooks:
    """Wraps the data loaders of one process, and stores the state that the wrappers share.

    The iterators of `torch.utils.data.dataloader`, with `_reset`, `_next_index` and `__next__`, and the fetcher, with
    `fetch`, are private classes. These methods have had the same names and arguments since torch 1.10.

    Args:
        observer: Returns the observer of this process. It is a function because a forked child has its own observer.
    """

    def __init__(self, observer: Callable[[], Observer]) -> None:
        self.observer = observer
        # Weak keys: a strong reference to a loader, an iterator or a data set would keep its workers alive.
        self.records: weakref.WeakKeyDictionary[Loader, LoaderRecord] = weakref.WeakKeyDictionary()
        self.lines: weakref.WeakKeyDictionary[Loader, str] = weakref.WeakKeyDictionary()
        """The line that constructed every loader."""
        self.passes: weakref.WeakKeyDictionary[object, PassState] = weakref.WeakKeyDictionary()
        """The last pass of every iterator."""
        self.splits: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
        """For every subset that `random_split` returned: the number of the `random_split` call."""
        self.datasets = DatasetNumbers()
        self.listed: set[tuple[int, str]] = set()
        """Pairs of a data set and a line that reads the data set. Only the first pass of every pair lists its rows."""
        self.fetching: list[PassState] = []
        """The passes whose batch is being fetched, the innermost last. A fetch may read from another loader."""
        self.sampling: list[PassState] = []
        """The passes whose sampler is running, the innermost last."""
        self.worker_pids: set[int] = set()
        """Process ids of data workers. Their files are removed at the end of this process."""
        self.collators: set[type] = set()
        """Classes of collators whose `_remove_columns` is wrapped."""

    def install(self) -> None:
        """Wrap the constructors, iterators and fetchers of data loaders, `random_split` and `randperm`."""
        iterator = dataloader._BaseDataLoaderIter
        atexit.register(self._remove_worker_files)
        workers.install(self.observer)
        frames.wrap(torch, "randperm", self._wrap_randperm)
        frames.wrap(data.DataLoader, "__init__", self._wrap_loader)
        frames.wrap(iterator, "__init__", self._wrap_iterator)
        frames.wrap(iterator, "_reset", self._wrap_reset)
        frames.wrap(iterator, "_next_index", self._wrap_next_index)
        frames.wrap(iterator, "__next__", self._wrap_next)
        frames.wrap(fetch._MapDatasetFetcher, "fetch", self._wrap_fetch)
        for module in (data, data.dataset):
            frames.wrap(module, "random_split", self._wrap_split)

    # Events.

    def begin(self, iterator: object, loader: Loader) -> None:
        """Record that a pass over a loader begins. If the script has not finished the previous pass, add its end."""
        active = self.observer()
        at = active.at()
        record = self.records.get(loader)
        if record is None:
            record = self._add_loader(loader, at)
        active.passes += 1
        record.passes += 1
        sampler = datasets.sampler_of(loader)
        if iterator in self.passes:  # with persistent workers, the passes of a loader have the same iterator
            self._read_workers(iterator)
        key = (self.datasets.of(loader.dataset, active.number), at)
        listed = key not in self.listed
        state = PassState(record.number, record.passes, datasets.is_random(sampler), listed=listed)
        state.removed_columns = record.removed_columns
        previous = record.last_pass
        if previous is not None and not previous.is_whole:
            size = datasets.size_of(loader.dataset)
            self._close(previous, "pass_left", whole=size is not None and previous.rows >= size)
        self.passes[iterator] = record.last_pass = state
        self.listed.add(key)
        epoch = getattr(sampler, "epoch", None)
        epoch = epoch if isinstance(epoch, int) else None
        direct = active.sites.is_direct()
        active.add("pass", loader=state.loader, index=state.index, epoch=epoch, direct=direct, at=at)

    def take(self, iterator: object, state: PassState, batch: object) -> None:
        """Record a batch that an iterator delivers."""
        active = self.observer()
        tensors = list(active.tensors_in(batch))
        active.batches.append((state.loader, references(tensors)))
        tokens.record_batch(active, batch)
        state.take(tensors)
        if state.removed_columns and state.batches <= EXAMINED_BATCHES:
            self._record_columns(state, batch)
        processes = getattr(iterator, "_workers", ())
        if state.batches == 1:
            self.worker_pids.update(process.pid for process in processes)
        # Workers write random states only in their first batches. Read their files after these batches, because the
        # pass may never end.
        if state.batches == (workers.STATE_BATCHES + 1) * len(processes):
            self._read_workers(iterator)

    def end(self, iterator: object) -> None:
        """Record that an iterator has delivered all its batches, or has no further batch."""
        state, active = self.passes[iterator], self.observer()
        if state.is_whole or not state.batches:
            active.add("pass_empty", loader=state.loader, index=state.index, at=active.at())
        if state.is_whole:
            return
        state.is_whole = True
        self._read_workers(iterator)
        self._close(state, "pass_end", whole=True)

    def _close(self, state: PassState, kind: str, *, whole: bool) -> None:
        """Add the events that end a pass.

        Args:
            state: The state of the pass.
            kind: The kind of the event: `pass_end`, or `pass_left` for a pass that the script did not finish.
            whole: Whether all rows were delivered. Only then, the rows are listed.
        """
        rows = state.sampled_rows() if whole else None
        if rows is not None:
            self.observer().add("rows", loader=state.loader, index=state.index, **rows)
        self.observer().add(kind, loader=state.loader, index=state.index, **state.summary())

    def _add_loader(self, loader: Loader, at: str) -> LoaderRecord:
        """Add the event of a loader that is read for the first time, and return the new record of the loader."""
        active = self.observer()
        record = LoaderRecord(active.number(), datasets.removed_columns(loader.dataset))
        self.records[loader] = record
        collator = type(loader.collate_fn)
        removes = collator.__module__.startswith("transformers.") and hasattr(collator, "_remove_columns")
        if removes and collator not in self.collators:
            self.collators.add(collator)
            frames.wrap(collator, "_remove_columns", self._wrap_remove_columns)
        dataset = loader.dataset
        base, _ = datasets.base_of(dataset)
        sampler = datasets.sampler_of(loader)
        weights = getattr(sampler, "weights", None)
        active.add(
            "loader",
            loader=record.number,
            dataset=type(dataset).__name__,
            data=self.datasets.of(dataset, active.number),
            base=self.datasets.of(base, active.number),
            examples=datasets.size_of(dataset),
            base_examples=datasets.size_of(base),
            readable=datasets.readable(loader),
            split=self.splits.get(dataset) if isinstance(dataset, data.Subset) else None,
            iterable=isinstance(dataset, data.IterableDataset),
            batch=loader.batch_size,
            sampler=type(sampler).__name__,
            random=datasets.is_random(sampler),
            replacement=bool(getattr(sampler, "replacement", False)),
            replicas=getattr(sampler, "num_replicas", None),
            set_epoch=callable(getattr(sampler, "set_epoch", None)),
            weights=len(weights) if isinstance(weights, Tensor) and weights.dim() else None,
            drop_last=bool(loader.drop_last or getattr(loader.batch_sampler, "drop_last", False)),
            workers=loader.num_workers,
            made_at=self.lines.get(loader, at),
            at=at,
        )
        return record

    def _record_columns(self, state: PassState, batch: Any) -> None:
        """Record the removed columns that are in a batch, because the collator has filled in other values."""
        for name, removed in state.removed_columns.items():
            column = batch[name] if name in batch else None
            if isinstance(column, Tensor) and column.dim() == 1 and column.device.type == "cpu":
                filled_in = sorted({float(value) for value in column.tolist()})
                fields = {"column": name, "removed": sorted(removed)[:8], "made": filled_in[:8], "rows": len(column)}
                self.observer().add("removed_column", loader=state.loader, index=state.index, **fields)

    def _read_workers(self, iterator: object) -> None:
        """Add a `worker` event for every record that the workers of a pass have written."""
        state = self.passes[iterator]
        for process in getattr(iterator, "_workers", ()):
            for line in workers.read(self.observer().folder, process.pid):
                self.observer().add("worker", loader=state.loader, index=state.index, **line)

    def _remove_worker_files(self) -> None:
        """Remove the files of data workers, unless this is a forked child."""
        for pid in self.worker_pids if self.observer().is_same_process() else ():
            workers.read(self.observer().folder, pid)

    # Wrappers: each method takes an original function and returns its replacement.

    def _wrap_loader(self, original: Function) -> Function:
        """Wrap the constructor of loaders to store the line of the call."""

        def __init__(loader: Loader, /, *args: object, **kwargs: object) -> None:
            original(loader, *args, **kwargs)
            if self.observer().is_active():
                with self.observer().observing("loader"):
                    self.lines[loader] = self.observer().at()

        return __init__

    def _wrap_split(self, original: Function) -> Function:
        """Wrap `random_split` to assign a number to the subsets of one call."""

        def random_split(*args: object, **kwargs: object) -> object:
            parts = original(*args, **kwargs)
            if self.observer().is_active():
                with self.observer().observing("split"):
                    self.splits.update(dict.fromkeys(parts, self.observer().number()))
            return parts

        return random_split

    def _wrap_iterator(self, original: Function) -> Function:
        """Wrap the constructor of iterators, which begins a pass."""

        def __init__(iterator: object, loader: Loader) -> None:
            original(iterator, loader)
            if self.observer().is_active():
                with self.observer().observing("loader"):
                    self.begin(iterator, loader)

        return __init__

    def _wrap_reset(self, original: Function) -> Function:
        """Wrap `_reset`, which begins a pass if a loader with persistent workers uses its iterator again."""

        def _reset(iterator: object, loader: Loader, first_iter: bool = False) -> object:
            # The constructor of the iterator also calls `_reset`, with `first_iter=True`.
            if not first_iter and self.observer().is_active():
                with self.observer().observing("loader"):
                    self.begin(iterator, loader)
            return original(iterator, loader, first_iter)

        return _reset

    def _wrap_next_index(self, original: Function) -> Function:
        """Wrap `_next_index`, which draws the indices of a batch in this process even if workers fetch the batches."""

        def _next_index(iterator: object) -> object:
            state = self.passes.get(iterator)
            if state is None:
                return original(iterator)
            self.sampling.append(state)
            try:
                index = original(iterator)
            finally:
                self.sampling.pop()
            indices = index if isinstance(index, list) else [index]  # a loader with batch_size=None draws one index
            state.drawn_indices.append(indices if all(type(i) is int for i in indices) else None)
            return index

        return _next_index

    def _wrap_next(self, original: Function) -> Function:
        """Wrap `__next__` to record the delivered batches and the end of a pass."""

        def __next__(iterator: object) -> object:
            state = self.passes.get(iterator)
            if state is None:
                return original(iterator)
            self.fetching.append(state)
            try:
                batch = original(iterator)
            except StopIteration:
                if self.observer().is_active():
                    # (None, {}) marks the end of the pass. Earlier batches stay in the list, because a library that
                    # fetches one batch ahead has not used the last batch yet.
                    self.observer().batches.append((None, {}))
                    with self.observer().observing("pass"):
                        self.end(iterator)
                raise
            finally:
                self.fetching.pop()
            if self.observer().is_active():
                with self.observer().observing("batch"):
                    self.take(iterator, state, batch)
            return batch

        return __next__

    def _wrap_fetch(self, original: Function) -> Function:
        """Wrap the fetch of a batch to compare stored examples before and after it, in the first batches and passes."""

        def fetch_batch(fetcher: fetch._MapDatasetFetcher, index: object) -> object:
            state = self.fetching[-1] if self.fetching else None
            if state is None or state.batches >= EXAMINED_BATCHES or state.index > 3 or not self.observer().is_active():
                return original(fetcher, index)
            stored = None
            with self.observer().observing("stored rows"):
                stored = datasets.StoredRows(fetcher.dataset, index)
            batch = original(fetcher, index)
            if stored is not None:
                with self.observer().observing("stored rows"):
                    compared = stored.compare(list(self.observer().tensors_in(batch)))
                    state.stored = [a + b for a, b in zip(state.stored, compared)]
            return batch

        return fetch_batch

    def _wrap_randperm(self, original: Function) -> Function:
        """Wrap `torch.randperm` to record that a sampler calls it: such a sampler shuffles its indices."""

        def randperm(*args: object, **kwargs: object) -> object:
            if self.sampling:
                self.sampling[-1].draws = True
            return original(*args, **kwargs)

        return randperm

    def _wrap_remove_columns(self, original: Function) -> Function:
        """Wrap the method of a transformers collator that removes columns to record numbers in removed columns."""

        def _remove_columns(collator: object, feature: Mapping[str, object]) -> object:
            rest = original(collator, feature)
            state = self.fetching[-1] if self.fetching else None
            if state is not None and state.batches < EXAMINED_BATCHES and self.observer().is_active():
                with self.observer().observing("columns"):
                    for name in feature.keys() - rest.keys():
                        value = feature[name]
                        if isinstance(value, (int, float)):
                            state.removed_columns.setdefault(name, set()).add(float(value))
            return rest

        return _remove_columns


def install(observer: Callable[[], Observer]) -> None:
    """Wrap the functions of data loaders.

    Args:
        observer: Returns the observer of this process.
    """
    LoaderHooks(observer).install()


def storages(tensors: Iterable[Tensor]) -> set[int]:
    """Return the addresses of the storages of dense tensors, without empty storages."""
    return {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.layout == torch.strided} - {0}


def references(tensors: Iterable[Tensor]) -> dict[int, StorageWeakRef]:
    """Return weak references to the storages of dense tensors, by address of the storage object.

    A weak reference prevents that the address of the storage object is reused. It does not keep the elements alive.
    """
    weak = (StorageWeakRef(tensor.untyped_storage()) for tensor in tensors if tensor.layout == torch.strided)
    return {reference.cdata: reference for reference in weak}


def scale_of(calls: int, tensor: Tensor) -> Optional[Late]:
    """Return the mean, standard deviation, minimum and maximum of the input of a model.

    Return None for calls after the first `SCALED_CALLS`, and for inputs that are not dense floats or have fewer than 32
    elements.

    Args:
        calls: The number of calls of the model, including this call.
        tensor: The input.
    """
    if calls > SCALED_CALLS or not tensor.is_floating_point() or tensor.numel() < 32 or tensor.layout != torch.strided:
        return None
    values = tensor.detach().float()
    low, high = values.aminmax()
    return Late([values.mean(), values.std(), low, high], lambda *parts: [part[0] for part in parts])


def loader_of(batches: Sequence[tuple[Optional[int], dict[int, object]]], tensors: list[Tensor]) -> Optional[int]:
    """Return the number of the loader whose batch contains one of the tensors.

    A batch contains a tensor if a tensor of the batch has the same storage. A copy of a batch, for example on a device,
    has other storages. If no batch contains a tensor, return the loader of the last batch, or None after the end of a
    pass.
    """
    if not batches:
        return None
    addresses = {tensor.untyped_storage()._cdata for tensor in tensors if tensor.layout == torch.strided}
    matching = (number for number, stored in reversed(batches) if addresses & stored.keys())
    return next(matching, batches[-1][0])
