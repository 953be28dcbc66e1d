"""The trace of one process: events as lines of JSON, with tensor values that are read when the trace is flushed.

An event is a JSON object with `event` (its kind) and `n` (its position in the process). `trace.schema.json` in this
folder describes every kind. A value on a device stays there, as a tensor or as `Late`, until the trace is flushed. A
flush copies all values with one transfer per device, so the observer waits for a device only in a flush.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional

import torch

SCHEMA = "pv-trace/1"
EVENTS_KEPT_WITHOUT_STEP = 20_000
"""Largest number of events that are kept at a flush in a process that has taken no step."""
PLAIN = frozenset((str, int, float, bool, type(None)))
"""Types of values that are written as they are."""

Event = dict[str, Any]
"""The fields of an event, or some of them; see `trace.schema.json`."""


class Late:
    """A JSON value that is built from tensors when the trace is flushed.

    Args:
        tensors: Tensors of numbers or booleans, of any shape, on any device.
        build: Called with one flat list of floats per tensor; returns the JSON value.
    """

    __slots__ = ("build", "tensors")

    def __init__(self, tensors: Sequence[torch.Tensor], build: Callable[..., object]) -> None:
        self.tensors = list(tensors)
        self.build = build


class Trace:
    """Collects the events of one process. Writes the events into a file after the process has taken a step.

    Args:
        folder: The existing folder of the file.
        options: The options of the observer, which are written into the first line.

    Attributes:
        count: Number of events so far.
    """

    def __init__(self, folder: Path, options: dict[str, object]) -> None:
        self.folder = folder
        self.count = 0
        self._options = options
        self._waiting: list[Event] = []
        """The events since the last flush."""
        self._path: Optional[Path] = None
        """The file; None before it is created."""
        self._has_step = False
        self._troubles: set[str] = set()
        """The texts of the errors that were recorded."""

    def add(self, kind: str, /, **fields: object) -> Event:
        """Append an event and return it. Fields may contain tensors and `Late` values."""
        event = {"event": kind, "n": self.count, **fields}
        self.count += 1
        self._waiting.append(event)
        self._has_step = self._has_step or kind == "step"
        return event

    def trouble(self, part: str, error: BaseException) -> None:
        """Add an event for an error in the observer, once per error text.

        Args:
            part: The part of the observer.
            error: The exception.
        """
        text = f"{part}: {type(error).__name__}: {error}"[:300]
        if text not in self._troubles and len(self._troubles) < 50:
            self._troubles.add(text)
            self.add("trouble", reason=text)

    def flush(self) -> None:
        """Write the waiting events. This is the only place where values are read from devices."""
        if not self._has_step:
            if len(self._waiting) > EVENTS_KEPT_WITHOUT_STEP:  # a process that never takes a step
                del self._waiting[:]
            return
        events, self._waiting = self._waiting, []
        # The file is created at the first flush after a step, so processes that never train leave no file.
        if self._path is None:
            rank = int(os.environ.get("RANK", "0"))
            self._path = self.folder / f"trace-{time.time_ns()}-{rank}-{os.getpid()}.jsonl"
            events.insert(0, self._start(rank))
        try:
            read_late(events)
        except Exception:  # drop only the events whose values cannot be read
            events = [event for event in events if self._is_readable(event)]
        encode = json.JSONEncoder(separators=(",", ":")).encode
        text = "".join(encode(event) + "\n" for event in events)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text)

    def _is_readable(self, event: Event) -> bool:
        try:
            read_late([event])
        except Exception as error:
            self.trouble(event["event"], error)
            return False
        return True

    def _start(self, rank: int) -> Event:
        """Return the first line of the trace."""
        return {
            "event": "start",
            "n": -1,
            "schema": SCHEMA,
            "rank": rank,
            "world_size": int(os.environ.get("WORLD_SIZE", "1")),
            "pid": os.getpid(),
            "time": time.time(),
            "argv": list(sys.argv),
            "folder": str(Path.cwd()),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "options": self._options,
        }


def read_late(events: list[Event]) -> None:
    """Replace the tensors and `Late` values in events by JSON values, with one transfer per device."""
    # 1. Visit all values of the events. Collect the tensors, and for every value a function that writes it later.
    tensors: list[torch.Tensor] = []
    writers: list[Callable[[list[list[float]]], None]] = []

    def visit(holder: Any, key: Any, value: object) -> None:
        if type(value) in PLAIN:  # the most frequent case; `isinstance` of a tensor is slow
            return
        if isinstance(value, torch.Tensor):
            position = len(tensors)
            tensors.append(value)
            scalar = value.dim() == 0

            def write(lists: list[list[float]]) -> None:
                holder[key] = lists[position][0] if scalar else lists[position]

            writers.append(write)
        elif isinstance(value, Late):
            start = len(tensors)
            tensors.extend(value.tensors)
            end = len(tensors)
            build = value.build

            def write_built(lists: list[list[float]]) -> None:
                holder[key] = build(*lists[start:end])

            writers.append(write_built)
        elif isinstance(value, dict):
            for name, part in value.items():
                visit(value, name, part)
        elif isinstance(value, list) and value and isinstance(value[0], (dict, list, torch.Tensor, Late)):
            for position, part in enumerate(value):
                visit(value, position, part)

    for event in events:
        for key, value in list(event.items()):
            visit(event, key, value)
    # 2. Read all tensors. 3. Write all values.
    lists = _numbers(tensors)
    for write in writers:
        write(lists)


def _numbers(tensors: list[torch.Tensor]) -> list[list[float]]:
    """Return the elements of every tensor as floats, read with one transfer per device."""
    lists: list[list[float]] = [[] for _ in tensors]
    devices: dict[torch.device, list[int]] = {}
    for position, tensor in enumerate(tensors):
        devices.setdefault(tensor.device, []).append(position)
    for device, positions in devices.items():
        if device.type == "cpu":
            for i in positions:
                tensor = tensors[i]
                flat = [tensor.item()] if tensor.dim() == 0 else tensor.detach().reshape(-1).tolist()
                lists[i] = list(map(float, flat))
            continue
        # One copy from the device, in float64. It represents float32 and integers up to 2^53 exactly; hashes of inputs
        # have only 48 bits for this reason.
        flat = torch.cat([tensors[i].detach().reshape(-1).double() for i in positions]).tolist()
        start = 0
        for i in positions:
            end = start + tensors[i].numel()
            lists[i] = flat[start:end]
            start = end
    return lists
