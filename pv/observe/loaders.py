"""Notes the passes over data loaders, which examples they read in which order, and which loader a batch came from."""

from __future__ import annotations

import atexit
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Optional

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import data
from torch.utils.data import dataloader
from torch.utils.data._utils import fetch

from . import examples, frames, tokens, workers
from .trace import Late

GROUPED_BATCHES = 16
"""Batches whose rows are fingerprinted at once, which costs a tenth of one after the other."""
LABELLED_PASSES = 2
COMPARED_BATCHES = 32
"""Batches at the beginning of a pass whose content is noted."""
LISTED_ROWS = 60_000
SCALED_CALLS = 6
"""Calls of a model, with and without gradients, whose inputs are summed up."""
LARGEST_SEEN = 200_000
KEPT_ROWS = 4096
"""Of more rows, the fraction whose number is divisible by a power of 2 is kept."""


class PassState:
    """What is noted of one pass over a loader."""

    def __init__(self, loader: int, index: int, random: Optional[bool], *, listed: bool) -> None:
        self.loader, self.index, self.random = loader, index, random
        self.batches = self.rows = 0
        self.drawn: deque[Optional[list[int]]] = deque()
        """Indices of the batches that were asked for and not yet delivered."""
        self.order: Optional[int] = 0
        """Depends on all indices so far, and their order; None if a batch had no indices."""
        self.seen: set[int] = set()
        self.content: Optional[int] = None
        """Depends on the rows of the first batches, and their order."""
        self._compared = 0
        self.prints: Optional[list[int]] = [] if listed else None
        self._waiting: list[Tensor] = []
        """Copies of rows that are not fingerprinted yet."""
        self.labels: list[tuple[int, int]] = []
        """The smallest and the largest label of each batch, where the order is not random."""
        self.stored = [0, 0]
        self.is_whole = self.draws = False
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
            if self.random is None and len(self.seen) < LARGEST_SEEN:
                self.seen.update(indices)
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

    def summary(self) -> dict[str, Any]:
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
            "distinct": len(self.seen) if self.seen and self.order is not None else None,
            "content": self.content,
            "labels": labels if self.labels else None,
            "stored": self.stored,
            "draws": self.draws,
        }

    def kept_prints(self) -> Optional[dict[str, Any]]:
        """Return the numbers of the rows of a whole pass, of many rows a sample that is the same for every loader."""
        self._list_rows()
        if not self.prints:
            return None
        divisor = 1
        while len(self.prints) > KEPT_ROWS * divisor:
            divisor *= 2
        return {"divisor": divisor, "count": len(self.prints), "prints": [n for n in self.prints if n % divisor == 0]}


class DatasetNumbers:
    """Numbers data sets, so that two that live one after the other at one address differ."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Callable[[], Any], int]] = {}

    def of(self, dataset: Any, new: Callable[[], int]) -> int:
        reference, number = self._known.get(id(dataset), (lambda: None, 0))
        if reference() is not dataset:
            number = new()
            try:
                reference = weakref.ref(dataset)
            except TypeError:  # such as a list: kept alive, so that its address is not used again
                reference = lambda: dataset  # noqa: E731  (a def would be no shorter, and has no better name)
            self._known[id(dataset)] = (reference, number)
        return number


def install(observer: Callable[[], Any]) -> None:
    """Wrap the iterators of `torch.utils.data.DataLoader`.

    Args:
        observer: Returns the observer of this process.
    """
    base = dataloader._BaseDataLoaderIter
    numbers: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
    """By loader: its number, and how many passes have begun."""
    passes: weakref.WeakKeyDictionary[Any, PassState] = weakref.WeakKeyDictionary()
    """By iterator: the pass that runs."""
    made_at: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
    splits: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
    """By result of `random_split`: the number of the call."""
    datasets = DatasetNumbers()
    listed: set[tuple[int, str]] = set()
    """Data sets whose rows are fingerprinted, with the line that reads them."""
    fetching: list[PassState] = []
    """The pass whose batch is fetched in this process."""
    indexing: list[PassState] = []
    """The pass whose sampler runs."""
    last: weakref.WeakKeyDictionary[Any, PassState] = weakref.WeakKeyDictionary()
    """By loader: its last pass."""

    removed: weakref.WeakKeyDictionary[Any, dict[str, set[float]]] = weakref.WeakKeyDictionary()
    """By loader: some numbers of the columns that its data set has lost."""
    started: set[int] = set()
    """Process ids of workers, whose files are removed at the end."""
    watched: set[Any] = set()
    """Classes of collators that remove columns."""

    def make_remove(original: Callable[..., Any]) -> Callable[..., Any]:
        def _remove_columns(self: Any, feature: Any) -> Any:
            kept = original(self, feature)
            if fetching and kept is not feature and observer().is_active():
                with observer().observing("columns"):
                    for name in feature.keys() - kept.keys():
                        value = feature[name]
                        if isinstance(value, (int, float)):
                            fetching[-1].columns.setdefault(name, set()).add(float(value))
            return kept

        return _remove_columns

    def note_loader(loader: Any, at: str) -> None:
        active = observer()
        numbers[loader] = [active.number(), 0]
        removed[loader] = examples.removed_columns(loader.dataset)
        kind = type(loader.collate_fn)
        if kind.__module__.startswith("transformers.") and hasattr(kind, "_remove_columns") and kind not in watched:
            watched.add(kind)
            wrap(kind, "_remove_columns", make_remove)
        dataset = loader.dataset
        inner, _ = examples.base_of(dataset)
        sampler = examples.sampler_of(loader)
        weights = getattr(sampler, "weights", None)
        active.add(
            "loader",
            loader=numbers[loader][0],
            dataset=type(dataset).__name__,
            data=datasets.of(dataset, active.number),
            base=datasets.of(inner, active.number),
            examples=examples.size_of(dataset),
            base_examples=examples.size_of(inner),
            readable=examples.readable(loader),
            split=splits.get(dataset) if isinstance(dataset, data.Subset) else None,
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
            made_at=made_at.get(loader, at),
            at=at,
        )

    def note_columns(state: PassState, batch: Any) -> None:
        """Note the columns that the collator has made itself, although the data set has them."""
        for name, numbers_of_column in state.columns.items():
            column = batch[name] if name in batch else None
            if isinstance(column, Tensor) and column.dim() == 1 and column.device.type == "cpu":
                values = {float(value) for value in column.tolist()}
                removed = sorted(numbers_of_column)
                made = sorted(values)
                fields = {"column": name, "removed": removed[:8], "made": made[:8], "rows": len(column)}
                observer().add("removed_column", loader=state.loader, index=state.index, **fields)
        state.columns = dict(state.lost)

    def begin(iterator: Any, loader: Any) -> None:
        active = observer()
        at = active.at()
        if loader not in numbers:
            note_loader(loader, at)
        active.passes += 1
        numbers[loader][1] += 1
        sampler = examples.sampler_of(loader)
        if iterator in passes:
            read_workers(iterator)
        key = (datasets.of(loader.dataset, active.number), at)
        number, index = numbers[loader]
        state = PassState(number, index, examples.is_random(sampler), listed=key not in listed)
        state.columns = state.lost = removed[loader]
        before = last.get(loader)
        if before is not None and not before.is_whole:
            size = examples.size_of(loader.dataset)
            close(before, "pass_left", whole=size is not None and before.rows >= size)
        passes[iterator] = last[loader] = state
        listed.add(key)
        epoch = getattr(sampler, "epoch", None)
        epoch = epoch if isinstance(epoch, int) else None
        direct = active.sites.is_direct()
        active.add("pass", loader=state.loader, index=state.index, epoch=epoch, direct=direct, at=at)

    def read_workers(iterator: Any) -> None:
        """Note what the workers of a pass have written."""
        for process in getattr(iterator, "_workers", ()):
            for line in workers.read(observer().folder, process.pid):
                state = passes[iterator]
                observer().add("worker", loader=state.loader, index=state.index, **line)

    def close(state: PassState, kind: str, *, whole: bool) -> None:
        kept = state.kept_prints() if whole else None
        if kept is not None:
            observer().add("rows", loader=state.loader, index=state.index, **kept)
        observer().add(kind, loader=state.loader, index=state.index, **state.summary())

    def end(iterator: Any) -> None:
        state, active = passes[iterator], observer()
        if state.is_whole or not state.batches:
            active.add("pass_empty", loader=state.loader, index=state.index, at=active.at())
        if state.is_whole:
            return
        state.is_whole = True
        read_workers(iterator)
        close(state, "pass_end", whole=True)

    def wrap(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        original = getattr(owner, name)
        setattr(owner, name, frames.wraps(original)(make(original)))

    def make_loader(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if observer().is_active():
                with observer().observing("loader"):
                    made_at[self] = observer().at()

        return __init__

    def make_split(original: Callable[..., Any]) -> Callable[..., Any]:
        def random_split(*args: Any, **kwargs: Any) -> Any:
            parts = original(*args, **kwargs)
            if observer().is_active():
                with observer().observing("split"):
                    splits.update(dict.fromkeys(parts, observer().number()))
            return parts

        return random_split

    def make_init(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(self: Any, loader: Any) -> None:
            original(self, loader)
            if observer().is_active():
                with observer().observing("loader"):
                    begin(self, loader)

        return __init__

    def make_reset(original: Callable[..., Any]) -> Callable[..., Any]:
        def _reset(self: Any, loader: Any, first_iter: bool = False) -> Any:
            if not first_iter and observer().is_active():  # persistent workers: the same iterator makes another pass
                with observer().observing("loader"):
                    begin(self, loader)
            return original(self, loader, first_iter)

        return _reset

    def make_next_index(original: Callable[..., Any]) -> Callable[..., Any]:
        def _next_index(self: Any) -> Any:
            state = passes.get(self)
            if state is None:
                return original(self)
            indexing.append(state)
            try:
                index = original(self)
            finally:
                indexing.pop()
            listed = index if isinstance(index, list) else [index]
            state.drawn.append(listed if all(type(i) is int for i in listed) else None)
            return index

        return _next_index

    def make_next(original: Callable[..., Any]) -> Callable[..., Any]:
        def __next__(self: Any) -> Any:
            state = passes.get(self)
            if state is None:
                return original(self)
            fetching.append(state)
            try:
                batch = original(self)
            except StopIteration:
                if observer().is_active():
                    # A library that fetches one batch ahead has not yet used the last one.
                    observer().batches.append((None, {}))
                    with observer().observing("pass"):
                        end(self)
                raise
            finally:
                fetching.pop()
            if observer().is_active():
                with observer().observing("batch"):
                    tensors = list(observer().tensors_in(batch))
                    observer().batches.append((state.loader, references(tensors)))
                    tokens.note_batch(observer(), batch)
                    state.take(tensors)
                    if state.columns and state.batches <= 4:
                        note_columns(state, batch)
                    if state.batches == 1:
                        started.update(process.pid for process in getattr(self, "_workers", ()))
                    if state.batches == 4 * len(getattr(self, "_workers", ())):
                        read_workers(self)  # the pass may have no end
            return batch

        return __next__

    def make_fetch(original: Callable[..., Any]) -> Callable[..., Any]:
        def fetch_batch(self: Any, index: Any) -> Any:
            state = fetching[-1] if fetching else None
            if state is None or state.batches >= 4 or state.index > 3 or not observer().is_active():
                return original(self, index)
            stored = None
            with observer().observing("stored rows"):
                stored = examples.StoredRows(self.dataset, index)
            batch = original(self, index)
            if stored is not None:
                with observer().observing("stored rows"):
                    compared = stored.compare(list(observer().tensors_in(batch)))
                    state.stored = [a + b for a, b in zip(state.stored, compared)]
            return batch

        return fetch_batch

    def make_randperm(original: Callable[..., Any]) -> Callable[..., Any]:
        def randperm(*args: Any, **kwargs: Any) -> Any:
            if indexing:
                indexing[-1].draws = True
            return original(*args, **kwargs)

        return randperm

    def remove_files() -> None:
        for pid in started if observer().is_same_process() else ():
            workers.read(observer().folder, pid)

    atexit.register(remove_files)
    workers.install(observer)
    wrap(torch, "randperm", make_randperm)
    wrap(data.DataLoader, "__init__", make_loader)
    wrap(base, "__init__", make_init)
    wrap(base, "_reset", make_reset)
    wrap(base, "_next_index", make_next_index)
    wrap(base, "__next__", make_next)
    wrap(fetch._MapDatasetFetcher, "fetch", make_fetch)
    for module in (data, data.dataset):
        wrap(module, "random_split", make_split)


def storages(tensors: Iterable[Tensor]) -> set[int]:
    """Return where tensors are stored."""
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


def loader_of(batches: Any, tensors: list[Tensor]) -> Optional[int]:
    """Return the number of the loader whose batch these tensors are of; if none matches, that of the pass that runs."""
    if not batches:
        return None
    addresses = {tensor.untyped_storage()._cdata for tensor in tensors if tensor.layout == torch.strided}
    matching = (number for number, stored in reversed(batches) if addresses & stored.keys())
    last: Optional[int] = batches[-1][0]
    return next(matching, last)
