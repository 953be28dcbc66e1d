"""Records random states and the rows of iterable data sets in the worker processes of data loaders.

A worker writes a few lines of JSON into a file named by its process id, and the parent process adds them to its trace.
The private function `_worker_loop` of torch is replaced by a wrapper. The wrapper keeps the name because a spawned
worker imports the function by name: if the worker is observed it gets the wrapper, otherwise the original.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.data._utils import fetch, worker

from . import datasets, frames

if TYPE_CHECKING:
    from torch import Tensor

    from .observer import Observer

PASSES = 4
"""Number of first passes of a worker that are recorded."""
STATE_BATCHES = 3
"""Number of first batches of a pass; after each of them, the states of random generators are recorded."""
ROW_BATCHES = 64
"""Number of batches of a pass over an iterable data set whose rows are recorded."""


class WorkerRecorder:
    """Writes the records of one worker process.

    Args:
        path: The file to write.
        dataset: The data set of the worker.
        number: The number of the worker.
        tensors_in: Called with a batch; returns its tensors.
    """

    def __init__(
        self, path: Path, dataset: object, number: int, tensors_in: Callable[[object], Iterable[Tensor]]
    ) -> None:
        self._path, self._dataset, self._number, self._tensors_in = path, dataset, number, tensors_in
        self.seeded: Counter[str] = Counter()
        """By name of a global generator: number of times that it was seeded."""
        self._fetcher: object = None
        self._pass = self._batches = 0
        """Number of passes that have begun, and of batches of the current pass that have ended."""

    def begin(self, fetcher: object) -> None:
        """Record the states of random generators before the first batch of a pass."""
        # A worker, even a persistent one, creates a new fetcher for every pass.
        if fetcher is not self._fetcher:
            self._fetcher, self._batches = fetcher, 0
            self._pass += 1
            if self._pass <= PASSES:
                self._write(states=datasets.generator_states(self._dataset))

    def end(self, batch: object) -> None:
        """Record the states of random generators after a batch, and the rows of an iterable data set."""
        self._batches += 1
        if self._pass > PASSES:
            return
        fields: dict[str, object] = {}
        if self._batches <= STATE_BATCHES:
            states, drawn = datasets.generator_states(self._dataset), datasets.used_generators()
            fields.update(states=states, drawn=drawn, seeded=dict(self.seeded))
        if self._batches <= ROW_BATCHES and isinstance(self._fetcher, fetch._IterableDatasetFetcher):
            rows = datasets.row_tensor(list(self._tensors_in(batch)))
            fields["rows"] = [] if rows is None else datasets.row_hashes([datasets.columns(rows)])[0]
        if fields:
            self._write(**fields)

    def _write(self, **fields: object) -> None:
        line = json.dumps({"worker": self._number, "batch": self._batches, **fields})
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def _count_seeds(counts: Counter[str]) -> None:
    """Wrap the functions that seed the global generators of this process.

    Args:
        counts: Gets the number of calls, by name of the generator.
    """
    for name, function in (("random", "seed"), ("numpy.random", "seed"), ("torch", "manual_seed")):

        def make(original: Callable[..., object], name: str = name) -> Callable[..., object]:
            def seed(*args: object, **kwargs: object) -> object:
                counts[name] += 1
                return original(*args, **kwargs)

            return seed

        if name in sys.modules:
            frames.wrap(sys.modules[name], function, make)


def path_of(folder: Path, pid: int) -> Path:
    """Return the file of a worker."""
    return folder / f".worker-{pid}.jsonl"


def read(folder: Path, pid: int) -> list[dict[str, object]]:
    """Return the records that a worker has written since the last call, and remove its file."""
    # The rename is atomic, so a line that the worker writes at the same time goes into the old file or into a new one.
    # A line is lost if the worker opens the old file before the rename, and writes after the file is read here.
    path, renamed = path_of(folder, pid), folder / f".worker-{pid}.read"
    try:
        path.replace(renamed)
        lines = renamed.read_text(encoding="utf-8").splitlines(keepends=True)
        renamed.unlink()
    except FileNotFoundError:
        return []
    # A worker that is killed may leave half a line.
    return [json.loads(line) for line in lines if line.endswith("\n")]


def install(observer: Callable[[], Observer]) -> None:
    """Wrap the loop of data workers. In a worker process, the wrapper also wraps the functions that fetch a batch.

    Args:
        observer: Returns the observer of this process.
    """
    # The loop is a private function whose signature has grown in several versions, so arguments are found by name.
    original = worker._worker_loop
    signature = inspect.signature(original)

    @frames.wraps(original)
    def _worker_loop(*args: Any, **kwargs: Any) -> None:
        with observer().observing("worker"):
            arguments = signature.bind(*args, **kwargs).arguments
            path = path_of(observer().folder, os.getpid())
            recorder = WorkerRecorder(path, arguments["dataset"], arguments["worker_id"], observer().tensors_in)
            _count_seeds(recorder.seeded)
            fetchers: tuple[Any, ...] = (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher)
            for fetcher in fetchers:
                fetcher.fetch = _wrap_fetch(fetcher.fetch, recorder, observer)
        original(*args, **kwargs)

    worker._worker_loop = _worker_loop


def _wrap_fetch(
    original: Callable[..., object], recorder: WorkerRecorder, observer: Callable[[], Observer]
) -> Callable[..., object]:
    @frames.wraps(original)
    def fetch_batch(self: object, index: object) -> object:
        with observer().observing("worker"):
            recorder.begin(self)
        batch = original(self, index)
        with observer().observing("worker"):
            recorder.end(batch)
        return batch

    return fetch_batch
