"""The trace of one process: events as lines of JSON, with tensor values that are read when the trace is flushed.

An event is a JSON object with `event` (its kind) and `n` (its position in the process; -1 for the event `start`).
`trace.schema.json` in this folder describes every kind. A value on a device stays there, as a tensor or as `Late`,
until the trace is flushed. A flush copies all values with one transfer per device, so adding an event does not wait for
a device. If a value cannot be read, every event is read on its own.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Optional

import torch

SCHEMA = "pv-trace/1"
MOST_WAITING = 10_000
"""Largest number of events in memory. A process that only evaluates may run for hours without a flush."""
PLAIN = frozenset((str, int, float, bool, type(None)))
"""Types of values that are written to the trace without a conversion."""

Event = dict[str, Any]
"""The fields of an event, or some of them; see `trace.schema.json`."""


class Late:
    """A JSON value that is computed from tensors when the trace is flushed.

    Args:
        tensors: Tensors of numbers or booleans, of any shape, on any device.
        build: Computes the JSON value. It is called with one flat list of floats per tensor.
    """

    __slots__ = ("build", "tensors")

    def __init__(self, tensors: Sequence[torch.Tensor], build: Callable[..., object]) -> None:
        self.tensors = list(tensors)
        self.build = build


class Trace:
    """Collects the events of one process, and writes them to a file.

    The first flush creates the file. The observer flushes only after steps, so a process that never trains leaves no
    file. Before the first flush, `free_memory` moves events to a temporary file.

    Args:
        folder: The existing folder of the file.
        options: The options of the observer. The first line of the file contains them.

    Attributes:
        count: Number of events so far, without the event `start`.
    """

    def __init__(self, folder: Path, options: dict[str, object]) -> None:
        self.folder = folder
        self.count = 0
        self._options = options
        self._waiting: list[Event] = []
        """The events since the last flush."""
        self._path: Optional[Path] = None
        """The file; None before it is created."""
        self._temporary: Optional[IO[str]] = None
        """The temporary file. It has no name, so it needs no removal."""
        self._troubles: set[str] = set()
        """The texts of the recorded errors."""

    def add(self, kind: str, /, **fields: object) -> Event:
        """Append an event and return it. Fields may contain tensors and `Late` values."""
        event = {"event": kind, "n": self.count, **fields}
        self.count += 1
        self._waiting.append(event)
        return event

    def trouble(self, part: str, error: BaseException) -> None:
        """Add a `trouble` event for an error in the observer.

        The text is cut at 300 characters. Nothing is added if there is an event with the same text, or if there are 50
        events.

        Args:
            part: The part of the observer in which the error occurred.
            error: The exception.
        """
        text = f"{part}: {type(error).__name__}: {error}"[:300]
        if text not in self._troubles and len(self._troubles) < 50:
            self._troubles.add(text)
            self.add("trouble", reason=text)

    def is_full(self) -> bool:
        """Return whether `MOST_WAITING` events are in memory."""
        return len(self._waiting) >= MOST_WAITING

    def free_memory(self) -> None:
        """Write the events to the file or, if the file does not exist yet, to a temporary file."""
        if self._path is not None:
            self.flush()
            return
        text = self._take_lines()
        if self._temporary is None:
            self._temporary = tempfile.TemporaryFile("w+", encoding="utf-8", dir=self.folder)
        self._temporary.write(text)
        self._temporary.flush()  # otherwise, a forked child would write its copy of the buffer too

    def flush(self) -> None:
        """Write the events since the last flush."""
        text = self._take_lines()
        if self._path is None:
            rank = int(os.environ.get("RANK", "0"))
            self._path = self.folder / f"trace-{time.time_ns()}-{rank}-{os.getpid()}.jsonl"
            with self._path.open("w", encoding="utf-8") as file:
                file.write(lines([self._start(rank)]))
                if self._temporary is not None:
                    self._temporary.seek(0)
                    shutil.copyfileobj(self._temporary, file)
                    self._temporary.close()
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text)

    def _take_lines(self) -> str:
        """Return the events in memory as lines, and forget the events. Only this method reads values from devices."""
        events, self._waiting = self._waiting, []
        try:
            read_late(events)
        except Exception:  # drop only the events whose values cannot be read
            events = [event for event in events if self._is_readable(event)]
            # Write the `trouble` events of these events now: there may be no other flush.
            events += [event for event in self._waiting if event["event"] == "trouble"]
            self._waiting = [event for event in self._waiting if event["event"] != "trouble"]
        return lines(events)

    def _is_readable(self, event: Event) -> bool:
        """Return whether the values of an event can be read; add a `trouble` event if they cannot."""
        try:
            read_late([event])
        except Exception as error:
            self.trouble(event["event"], error)
            return False
        return True

    def _start(self, rank: int) -> Event:
        """Return the first event of the trace."""
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


def lines(events: Sequence[Event]) -> str:
    """Return events as lines of JSON."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    return "".join(encode(event) + "\n" for event in events)


def read_late(events: list[Event]) -> None:
    """Replace the tensors and `Late` values in events by JSON values, with one transfer per device.

    A list is searched only if its first element is a dictionary, a list, a tensor or a `Late` value.
    """
    # 1. Visit all values of the events. Collect all tensors, and for every value a function that replaces the value.
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
    # 2. Read all tensors. 3. Replace all values.
    lists = _read_tensors(tensors)
    for write in writers:
        write(lists)


def _read_tensors(tensors: list[torch.Tensor]) -> list[list[float]]:
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
        # One copy from the device, in float64. A float64 represents every float32 and every integer up to 2^53 exactly.
        # Hashes have only 48 bits, so that they stay exact.
        flat = torch.cat([tensors[i].detach().reshape(-1).double() for i in positions]).tolist()
        start = 0
        for i in positions:
            end = start + tensors[i].numel()
            lists[i] = flat[start:end]
            start = end
    return lists
