"""Notes, in the worker processes of data loaders, their random numbers and what an iterable data set yields.

A worker writes a few lines of JSON into a file with its process id; the process that started it reads them into its
trace. `_worker_loop` of torch is wrapped under its name, so that a spawned worker finds its wrapper, or, where it is
not observed, the original.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.data._utils import fetch, worker

from . import examples, frames

if TYPE_CHECKING:
    from .observer import Observer

STATES = 3
"""Batches after which the states of random generators are noted."""
ROWS = 64
"""Batches of an iterable data set whose rows are noted."""


class WorkerNotes:
    """What is noted in one worker process."""

    def __init__(self, path: Path, dataset: object, number: int, tensors_in: Callable[[Any], Any]) -> None:
        self._path, self._dataset, self._number, self._tensors_in = path, dataset, number, tensors_in
        self._fetcher: object = None
        self._pass = self._batches = 0

    def begin(self, fetcher: object) -> None:
        """Note the states of random generators before the first batch of a pass."""
        # A worker makes a new fetcher for each pass; persistent workers as well.
        if fetcher is not self._fetcher:
            self._fetcher, self._batches = fetcher, 0
            self._pass += 1
            if self._pass <= 4:
                self._write(states=examples.generators(self._dataset))

    def end(self, batch: Any) -> None:
        """Note the states after a batch, and the rows of a stream."""
        self._batches += 1
        if self._pass > 4:
            return
        fields: dict[str, object] = {}
        if self._batches <= STATES:
            fields["states"] = examples.generators(self._dataset)
        if self._batches <= ROWS and isinstance(self._fetcher, fetch._IterableDatasetFetcher):
            rows = examples.row_tensor(list(self._tensors_in(batch)))
            fields["rows"] = [] if rows is None else examples.row_numbers([examples.columns(rows)])[0]
        if fields:
            self._write(**fields)

    def _write(self, **fields: object) -> None:
        line = json.dumps({"worker": self._number, "batch": self._batches, **fields})
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def path_of(folder: Path, pid: int) -> Path:
    """Return the file of a worker."""
    return folder / f".worker-{pid}.jsonl"


def read(folder: Path, pid: int) -> list[dict[str, object]]:
    """Return the lines that a worker has written since the last call, and remove them."""
    # The rename is atomic, so that a line which the worker writes now goes into the old file or into a new one.
    path, taken = path_of(folder, pid), folder / f".worker-{pid}.read"
    try:
        path.replace(taken)
        lines = taken.read_text(encoding="utf-8").splitlines(keepends=True)
        taken.unlink()
    except FileNotFoundError:
        return []
    # A worker that is killed may leave half a line.
    return [json.loads(line) for line in lines if line.endswith("\n")]


def install(observer: Callable[[], Observer]) -> None:
    """Wrap the loop of a worker, which wraps, in its process, what fetches a batch.

    Args:
        observer: Returns the observer of this process.
    """
    # Private, with a signature that grows from version to version: arguments are bound by name.
    original = worker._worker_loop
    signature = inspect.signature(original)

    @frames.wraps(original)
    def _worker_loop(*args: object, **kwargs: object) -> object:
        with observer().observing("worker"):
            arguments = signature.bind(*args, **kwargs).arguments
            path = path_of(observer().folder, os.getpid())
            notes = WorkerNotes(path, arguments["dataset"], arguments["worker_id"], observer().tensors_in)
            kinds: tuple[Any, ...] = (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher)
            for kind in kinds:
                kind.fetch = _noted(kind.fetch, notes, observer)
        return original(*args, **kwargs)

    worker._worker_loop = _worker_loop


def _noted(
    original: Callable[..., object], notes: WorkerNotes, observer: Callable[[], Observer]
) -> Callable[..., object]:
    @frames.wraps(original)
    def fetch_batch(self: object, index: object) -> object:
        with observer().observing("worker"):
            notes.begin(self)
        batch = original(self, index)
        with observer().observing("worker"):
            notes.end(batch)
        return batch

    return fetch_batch
