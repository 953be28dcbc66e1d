"""Notes the passes over data loaders, which examples they read in which order, and which loader a batch came from."""

from __future__ import annotations

import atexit
import functools
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Optional

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import data
from torch.utils.data import dataloader
from torch.utils.data._utils import fetch

from . import examples, frames, tokens, workers
from .trace import Late

if TYPE_CHECKING:
    from .observer import Observer

Loader = data.DataLoader[Any]
Function = Callable[..., Any]

GROUPED_BATCHES = 16
"""Batches whose rows are fingerprinted at once, which costs a tenth of one after the other."""
LABELLED_PASSES = 2
"""Passes in which labels are read: the second shows whether a pass begins again with the first label."""
COMPARED_BATCHES = 32
"""Batches at the beginning of a pass whose content is noted."""
LISTED_ROWS = 60_000
"""Rows of a pass that are fingerprinted; a longer pass has no list of rows."""
SCALED_CALLS = 6
"""Calls of a model, with and without gradients, whose inputs are summed up."""
COUNTED_INDICES = 200_000
"""Distinct indices of a pass that are counted, for samplers of the script's own."""
SAMPLED_ROWS = 4096
"""Of a list of more rows, those whose number is divisible by a power of 2 are written into the trace."""


class PassState:
    """What is noted of one pass over a loader."""

    def __init__(self, loader: int, index: int, random: Optional[bool], *, listed: bool) -> None:
        self.loader, self.index, self.random = loader, index, random
        self.batches = self.rows = 0
        self.drawn: deque[Optional[list[int]]] = deque()
        """Indices of the batches that were asked for and not yet delivered."""
        self.order: Optional[int] = 0
        """Depends on all indices so far, and their order; None if a batch had no indices."""
        self.indices: set[int] = set()
        """The indices so far, of a sampler that is not one of torch."""
        self.content: Optional[int] = None
        """Depends on the rows of the first batches, and their order."""
        self._compared = 0
        self.prints: Optional[list[int]] = [] if listed else None
        """Fingerprints of all rows so far; None if they are not listed, or too many."""
        self._waiting: list[Tensor] = []
        """Copies of rows that are not fingerprinted yet."""
        self.labels: list[tuple[int, int]] = []
        """The smallest and the largest label of each batch, where the order is not random."""
        self.stored = [0, 0]
        """How many examples were compared in storage before and after they were read, and how many have changed."""
        self.is_whole = self.draws = False
        """Whether all batches were delivered, and whether the sampler has drawn a permutation."""
        self.columns: dict[str, set[float]] = {}
        """Some numbers of the columns that a library has removed from examples, before the collator got them."""
        self.lost: dict[str, set[float]] = {}
        """Those that it has removed from the data set."""

    def take(self, batch: list[Tensor]) -> None:
        """Note a batch that is delivered."""
        self.batches += 1
        indices = self.drawn.popleft() if self.drawn else None
        if indices is None or self.order is None:
            self.order = None
        else:
            self.order = hash((self.order, *indices))
            if self.random is None and len(self.indices) < COUNTED_INDICES:
                self.indices.update(indices)
        # Reading rows costs time, so only two kinds of passes are read: the first over a data set, which is listed as
        # a whole, and the beginnings of the first four, whose orders are compared.
        compared = self.batches <= COMPARED_BATCHES and self.index <= 4
        listed = self.prints is not None or compared
        inputs = examples.row_tensor(batch) if listed or indices is None else None
        self.rows += len(indices) if indices is not None else 0 if inputs is None else inputs.shape[0]
        if inputs is not None and listed:
            self._waiting.append(examples.columns(inputs))
            if len(self._waiting) == GROUPED_BATCHES:
                self._list_rows()
        if self.random is False and self.index <= LABELLED_PASSES and len(self.labels) < 2000 and indices:
            labels = examples.label_tensor(batch, len(indices))
            if labels is not None:
                self.labels.append((int(labels.min()), int(labels.max())))

    def _list_rows(self) -> None:
        waiting, self._waiting = self._waiting, []
        for rows in examples.row_numbers(waiting):
            if self._compared < COMPARED_BATCHES:
                self._compared += 1
                self.content = hash((self.content or 0, *rows))
            if self.prints is not None:
                self.prints += rows
                if len(self.prints) > LISTED_ROWS:
                    self.prints = None

    def summary(self) -> dict[str, object]:
        """Return the fields of the event that ends the pass."""
        self._list_rows()
        steps = list(zip(self.labels, self.labels[1:]))
        labels = {
            "batches": len(self.labels),
            "one_label": sum(low == high for low, high in self.labels),
            "distinct": len({label for pair in self.labels for label in pair}),
            "sorted": all(a[1] <= b[0] for a, b in steps) or all(a[0] >= b[1] for a, b in steps),
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

    def sampled_prints(self) -> Optional[dict[str, object]]:
        """Return the numbers of the rows of a whole pass; of many rows, a sample that is the same for every loader."""
        self._list_rows()
        if not self.prints:
            return None
        # A fixed fraction by value, not by position: two loaders of the same rows keep the same ones, in any order.
        divisor = 1
        while len(self.prints) > SAMPLED_ROWS * divisor:
            divisor *= 2
        return {"divisor": divisor, "count": len(self.prints), "prints": [n for n in self.prints if n % divisor == 0]}


def _identity(value: object) -> object:
    return value


class DatasetNumbers:
    """Numbers data sets. Two data sets differ even if the second one lives at the address of the first."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[Callable[[], object], int]] = {}

    def of(self, dataset: object, new: Callable[[], int]) -> int:
        """Return the number of a data set; of a new one, what `new` returns."""
        reference, number = self._by_id.get(id(dataset), (lambda: None, 0))
        if reference() is not dataset:
            number = new()
            try:
                reference = weakref.ref(dataset)
            except TypeError:  # such as a list: kept alive, so that its address is not used again
                reference = functools.partial(_identity, dataset)
            self._by_id[id(dataset)] = (reference, number)
        return number


class LoaderRecord:
    """What is known of one data loader.

    Attributes:
        number: The number of the loader in the trace.
        passes: How many passes over it have begun.
        removed_columns: Some numbers of each column that a library has removed from its data set.
        last_pass: Its last pass; None before the first.
    """

    def __init__(self, number: int, removed_columns: dict[str, set[float]]) -> None:
        self.number = number
        self.removed_columns = removed_columns
        self.passes = 0
        self.last_pass: Optional[PassState] = None


class LoaderHooks:
    """The wrappers around data loaders of one process, and what they remember between calls.

    The iterator classes of `torch.utils.data.dataloader` and the fetcher are private. Their methods `_reset`,
    `_next_index` and `__next__`, and `fetch`, have had these names and arguments since torch 1.10.

    Args:
        observer: Returns the observer of this process. A function, since a forked child has another observer.
    """

    def __init__(self, observer: Callable[[], Observer]) -> None:
        self.observer = observer
        # Weak keys: the observer keeps no loader, iterator or data set alive, which would keep its workers alive too.
        self.records: weakref.WeakKeyDictionary[Loader, LoaderRecord] = weakref.WeakKeyDictionary()
        self.lines: weakref.WeakKeyDictionary[Loader, str] = weakref.WeakKeyDictionary()
        """By loader: the line that constructs it."""
        self.passes: weakref.WeakKeyDictionary[object, PassState] = weakref.WeakKeyDictionary()
        """By iterator: the pass that runs."""
        self.splits: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
        """By subset that `random_split` returned: the number of the call."""
        self.datasets = DatasetNumbers()
        self.listed: set[tuple[int, str]] = set()
        """Data sets whose rows are fingerprinted, with the line that reads them: once is enough for each."""
        self.fetching: list[PassState] = []
        """The pass whose batch is fetched in this process. A stack: a data set may read another loader inside."""
        self.indexing: list[PassState] = []
        """The pass whose sampler runs."""
        self.worker_pids: set[int] = set()
        """Process ids of workers, whose files are removed at the end."""
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
        """Note that a pass over a loader begins, and end the one before if the script has left it."""
        active = self.observer()
        at = active.at()
        record = self.records.get(loader)
        if record is None:
            record = self._add_loader(loader, at)
        active.passes += 1
        record.passes += 1
        sampler = examples.sampler_of(loader)
        if iterator in self.passes:  # persistent workers continue into the next pass
            self._read_workers(iterator)
        key = (self.datasets.of(loader.dataset, active.number), at)
        listed = key not in self.listed
        state = PassState(record.number, record.passes, examples.is_random(sampler), listed=listed)
        state.columns = state.lost = record.removed_columns
        before = record.last_pass
        if before is not None and not before.is_whole:
            size = examples.size_of(loader.dataset)
            self._close(before, "pass_left", whole=size is not None and before.rows >= size)
        self.passes[iterator] = record.last_pass = state
        self.listed.add(key)
        epoch = getattr(sampler, "epoch", None)
        epoch = epoch if isinstance(epoch, int) else None
        direct = active.sites.is_direct()
        active.add("pass", loader=state.loader, index=state.index, epoch=epoch, direct=direct, at=at)

    def take(self, iterator: object, state: PassState, batch: object) -> None:
        """Note a batch that an iterator delivers."""
        active = self.observer()
        tensors = list(active.tensors_in(batch))
        active.batches.append((state.loader, references(tensors)))
        tokens.note_batch(active, batch)
        state.take(tensors)
        if state.columns and state.batches <= 4:
            self._note_columns(state, batch)
        processes = getattr(iterator, "_workers", ())
        if state.batches == 1:
            self.worker_pids.update(process.pid for process in processes)
        # Workers write in their first batches. They are not only read at the end of the pass: it may have no end.
        if state.batches == 4 * len(processes):
            self._read_workers(iterator)

    def end(self, iterator: object) -> None:
        """Note that an iterator has delivered all its batches, or that it delivers none."""
        state, active = self.passes[iterator], self.observer()
        if state.is_whole or not state.batches:
            active.add("pass_empty", loader=state.loader, index=state.index, at=active.at())
        if state.is_whole:
            return
        state.is_whole = True
        self._read_workers(iterator)
        self._close(state, "pass_end", whole=True)

    def _close(self, state: PassState, kind: str, *, whole: bool) -> None:
        prints = state.sampled_prints() if whole else None
        if prints is not None:
            self.observer().add("rows", loader=state.loader, index=state.index, **prints)
        self.observer().add(kind, loader=state.loader, index=state.index, **state.summary())

    def _add_loader(self, loader: Loader, at: str) -> LoaderRecord:
        active = self.observer()
        record = LoaderRecord(active.number(), examples.removed_columns(loader.dataset))
        self.records[loader] = record
        collator = type(loader.collate_fn)
        removes = collator.__module__.startswith("transformers.") and hasattr(collator, "_remove_columns")
        if removes and collator not in self.collators:
            self.collators.add(collator)
            frames.wrap(collator, "_remove_columns", self._wrap_remove_columns)
        dataset = loader.dataset
        inner, _ = examples.base_of(dataset)
        sampler = examples.sampler_of(loader)
        weights = getattr(sampler, "weights", None)
        active.add(
            "loader",
            loader=record.number,
            dataset=type(dataset).__name__,
            data=self.datasets.of(dataset, active.number),
            base=self.datasets.of(inner, active.number),
            examples=examples.size_of(dataset),
            base_examples=examples.size_of(inner),
            readable=examples.readable(loader),
            split=self.splits.get(dataset) if isinstance(dataset, data.Subset) else None,
            iterable=isinstance(dataset, data.IterableDataset),
            batch=loader.batch_size,
            sampler=type(sampler).__name__,
            random=examples.is_random(sampler),
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

    def _note_columns(self, state: PassState, batch: Any) -> None:
        """Note the columns that the collator has filled in itself, although the data set has them."""
        for name, removed in state.columns.items():
            column = batch[name] if name in batch else None
            if isinstance(column, Tensor) and column.dim() == 1 and column.device.type == "cpu":
                filled_in = sorted({float(value) for value in column.tolist()})
                fields = {"column": name, "removed": sorted(removed)[:8], "made": filled_in[:8], "rows": len(column)}
                self.observer().add("removed_column", loader=state.loader, index=state.index, **fields)
        state.columns = dict(state.lost)

    def _read_workers(self, iterator: object) -> None:
        """Note what the workers of a pass have written."""
        state = self.passes[iterator]
        for process in getattr(iterator, "_workers", ()):
            for line in workers.read(self.observer().folder, process.pid):
                self.observer().add("worker", loader=state.loader, index=state.index, **line)

    def _remove_worker_files(self) -> None:
        for pid in self.worker_pids if self.observer().is_same_process() else ():
            workers.read(self.observer().folder, pid)

    # Wrappers. Each takes an original function and returns what replaces it.

    def _wrap_loader(self, original: Function) -> Function:
        def __init__(loader: Loader, /, *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            if self.observer().is_active():
                with self.observer().observing("loader"):
                    self.lines[loader] = self.observer().at()

        return __init__

    def _wrap_split(self, original: Function) -> Function:
        def random_split(*args: Any, **kwargs: Any) -> object:
            parts = original(*args, **kwargs)
            if self.observer().is_active():
                with self.observer().observing("split"):
                    self.splits.update(dict.fromkeys(parts, self.observer().number()))
            return parts

        return random_split

    def _wrap_iterator(self, original: Function) -> Function:
        def __init__(iterator: object, loader: Loader) -> None:
            original(iterator, loader)
            if self.observer().is_active():
                with self.observer().observing("loader"):
                    self.begin(iterator, loader)

        return __init__

    def _wrap_reset(self, original: Function) -> Function:
        def _reset(iterator: object, loader: Loader, first_iter: bool = False) -> object:
            # With persistent workers, the same iterator makes every pass: only the first is begun by its constructor.
            if not first_iter and self.observer().is_active():
                with self.observer().observing("loader"):
                    self.begin(iterator, loader)
            return original(iterator, loader, first_iter)

        return _reset

    def _wrap_next_index(self, original: Function) -> Function:
        """Wrap the draw of a batch's indices. It runs in this process even where workers fetch the batch."""

        def _next_index(iterator: object) -> object:
            state = self.passes.get(iterator)
            if state is None:
                return original(iterator)
            self.indexing.append(state)
            try:
                index = original(iterator)
            finally:
                self.indexing.pop()
            indices = index if isinstance(index, list) else [index]  # a loader without batches draws one index
            state.drawn.append(indices if all(type(i) is int for i in indices) else None)
            return index

        return _next_index

    def _wrap_next(self, original: Function) -> Function:
        def __next__(iterator: object) -> object:
            state = self.passes.get(iterator)
            if state is None:
                return original(iterator)
            self.fetching.append(state)
            try:
                batch = original(iterator)
            except StopIteration:
                if self.observer().is_active():
                    # A library that fetches one batch ahead has not yet used the last one.
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
        """Wrap the fetch of a batch: compare stored examples before and after, in the first batches and passes."""

        def fetch_batch(fetcher: Any, index: Any) -> object:
            state = self.fetching[-1] if self.fetching else None
            if state is None or state.batches >= 4 or state.index > 3 or not self.observer().is_active():
                return original(fetcher, index)
            stored = None
            with self.observer().observing("stored rows"):
                stored = examples.StoredRows(fetcher.dataset, index)
            batch = original(fetcher, index)
            if stored is not None:
                with self.observer().observing("stored rows"):
                    compared = stored.compare(list(self.observer().tensors_in(batch)))
                    state.stored = [a + b for a, b in zip(state.stored, compared)]
            return batch

        return fetch_batch

    def _wrap_randperm(self, original: Function) -> Function:
        """Wrap `torch.randperm`: a sampler of the script's own that calls it shuffles."""

        def randperm(*args: Any, **kwargs: Any) -> object:
            if self.indexing:
                self.indexing[-1].draws = True
            return original(*args, **kwargs)

        return randperm

    def _wrap_remove_columns(self, original: Function) -> Function:
        """Wrap the method of a collator of transformers that removes columns which the model does not name."""

        def _remove_columns(collator: object, feature: Any) -> object:
            rest = original(collator, feature)
            if self.fetching and rest is not feature and self.observer().is_active():
                with self.observer().observing("columns"):
                    for name in feature.keys() - rest.keys():
                        value = feature[name]
                        if isinstance(value, (int, float)):
                            self.fetching[-1].columns.setdefault(name, set()).add(float(value))
            return rest

        return _remove_columns


def install(observer: Callable[[], Observer]) -> None:
    """Observe data loaders from now on.

    Args:
        observer: Returns the observer of this process.
    """
    LoaderHooks(observer).install()


def storages(tensors: Iterable[Tensor]) -> set[int]:
    """Return the addresses of the storages of dense tensors."""
    return {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.layout == torch.strided} - {0}


def references(tensors: Iterable[Tensor]) -> dict[int, StorageWeakRef]:
    """Return weak references to storages by their addresses, which are not used again while the references live.

    The memory of a batch may be used again, for a tensor of another origin.
    """
    weak = (StorageWeakRef(tensor.untyped_storage()) for tensor in tensors if tensor.layout == torch.strided)
    return {reference.cdata: reference for reference in weak}


def scale_of(calls: int, tensor: Tensor) -> Optional[Late]:
    """Return mean, standard deviation, minimum and maximum of an input, in the first calls; read late."""
    if calls > SCALED_CALLS or not tensor.is_floating_point() or tensor.numel() < 32 or tensor.layout != torch.strided:
        return None
    values = tensor.detach().float()
    low, high = values.aminmax()
    return Late([values.mean(), values.std(), low, high], lambda *parts: [part[0] for part in parts])


def loader_of(batches: Sequence[tuple[Optional[int], dict[int, object]]], tensors: list[Tensor]) -> Optional[int]:
    """Return the number of the loader whose batch these tensors come from; else the loader of the running pass.

    A tensor belongs to a batch if it shares its storage, such as a slice or a view. A copy, for example on a device,
    matches none: then the last batch is taken, which is None after the end of a pass.
    """
    if not batches:
        return None
    addresses = {tensor.untyped_storage()._cdata for tensor in tensors if tensor.layout == torch.strided}
    matching = (number for number, stored in reversed(batches) if addresses & stored.keys())
    return next(matching, batches[-1][0])
