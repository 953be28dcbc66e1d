"""The trace of one process: events as lines of JSON, whose tensor values are read late.

An event is a JSON object with `event` (its kind) and `n` (its position in the process). `trace.schema.json` beside this
file describes every kind. A value that is on a device stays there, as a tensor or as `Late`, until the trace is
flushed; a flush copies all of them with one transfer a device, so that observation makes the host wait for the device
only there.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import sys
import sysconfig
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Optional

import torch

SCHEMA = "pv-trace/1"
EVENTS_KEPT_WITHOUT_STEP = 20_000
FRAMES_IN_KEY = 6
PLAIN = frozenset((str, int, float, bool, type(None)))
"""Types of values that are written as they are."""

Event = dict[str, Any]
"""The fields of an event, or a part of them, as `trace.schema.json` describes them."""


class Late:
    """A JSON value that is built from tensors when the trace is flushed.

    Args:
        tensors: Tensors of numbers or truth values, of any shape, on any device.
        build: Called with one flat list of floats a tensor; returns the JSON value.
    """

    __slots__ = ("build", "tensors")

    def __init__(self, tensors: Sequence[torch.Tensor], build: Callable[..., object]) -> None:
        self.tensors = list(tensors)
        self.build = build


class CallSites:
    """Finds the line of the user's code that is running.

    Frames of torch, of this package, of the standard library and of the file that starts a console command are passed
    over. A line of an installed library is named only where no line of the user's code is on the stack.
    """

    def __init__(self) -> None:
        self._skipped = tuple(
            str(Path(folder).resolve()) + os.sep
            for folder in (
                Path(torch.__file__).parent,
                Path(__file__).parent,
                sysconfig.get_paths()["stdlib"],
                sysconfig.get_paths()["scripts"],
            )
        )
        # What `python -c` and `python -` run has a name like code that libraries generate.
        self._main = getattr(sys.modules.get("__main__"), "__file__", None) or "<string>"
        self._kinds: dict[str, str] = {}
        self._keys: dict[tuple[Any, ...], int] = {}
        self._shown: dict[str, str] = {}

    def _kind(self, file: str) -> str:
        kind = self._kinds.get(file)
        if kind is None and file.startswith("<") and file != self._main:  # generated code, and `frames.HIDDEN`
            kind = self._kinds[file] = "skipped"
        if kind is None:
            real = str(Path(file).resolve())
            if "site-packages" in real or "dist-packages" in real:
                kind = "skipped" if real.startswith(self._skipped[:2]) else "library"
            else:
                kind = "skipped" if real.startswith(self._skipped) else "user"
            self._kinds[file] = kind
        return kind

    def is_user(self, file: str) -> bool:
        """Return whether a source file is the user's, not one of an installed library."""
        return self._kind(file) == "user"

    def _place(self, frame: FrameType) -> str:
        file = frame.f_code.co_filename
        if file not in self._shown:
            real = Path(file).resolve()
            try:
                self._shown[file] = str(real.relative_to(Path.cwd()))
            except (ValueError, OSError):
                self._shown[file] = str(real)
        return f"{self._shown[file]}:{frame.f_lineno}"

    def find(self, depth: int = 2) -> tuple[str, int]:
        """Return "path:line" of the running line of the user's code, and a number of the call.

        The number distinguishes two calls on one line, and two callers of one helper. It is the same on every rank.

        Args:
            depth: How many callers above this method to begin with.
        """
        frame: Optional[FrameType] = sys._getframe(depth)
        calls: list[tuple[str, int]] = []
        codes: list[CodeType] = []
        user = library = ""
        while frame is not None and (len(calls) < FRAMES_IN_KEY or not user):
            kind = self._kind(frame.f_code.co_filename)
            if kind != "skipped":
                if len(calls) < FRAMES_IN_KEY:
                    calls.append((frame.f_code.co_filename, frame.f_lasti))
                    codes.append(frame.f_code)
                if kind == "user":
                    user = user or self._place(frame)
                else:
                    library = library or self._place(frame)
            frame = frame.f_back
        # `f_lasti` distinguishes two calls on one line. Frames beyond the sixth are left out, which bounds the cost.
        key = tuple(calls)
        if key not in self._keys:  # crc32, since `hash` of a string differs between processes
            places = [(file, _place_of(code, last)) for (file, last), code in zip(calls, codes)]
            self._keys[key] = zlib.crc32(repr(places).encode())
        return user or library or "?", self._keys[key]

    def is_direct(self) -> bool:
        """Return whether the user's code has called torch itself, not through an installed library."""
        frame: Optional[FrameType] = sys._getframe(1)
        while frame is not None and self._kind(frame.f_code.co_filename) == "skipped":
            frame = frame.f_back
        return frame is not None and self._kind(frame.f_code.co_filename) == "user"


def _place_of(code: CodeType, instruction: int) -> object:
    """Return lines and columns of an instruction.

    Python 3.11 makes a call of several instructions, and reports another of them once it has specialized the first.
    """
    positions = getattr(code, "co_positions", None)
    place = next(itertools.islice(positions(), instruction // 2, None), None) if positions is not None else None
    return instruction if place is None or None in place else place


class Trace:
    """Collects the events of one process, and writes them into a folder once the process has taken a step.

    Args:
        folder: Where the file is written. It exists.
        options: What the observer was asked for, for the first line.
    """

    def __init__(self, folder: Path, options: dict[str, object]) -> None:
        self.folder = folder
        self.count = 0
        self._options = options
        self._waiting: list[Event] = []
        self._path: Optional[Path] = None
        self._has_step = False
        self._troubles: set[str] = set()

    def add(self, kind: str, /, **fields: object) -> Event:
        """Append an event, and return it; fields may hold tensors and `Late` values."""
        event = {"event": kind, "n": self.count, **fields}
        self.count += 1
        self._waiting.append(event)
        self._has_step = self._has_step or kind == "step"
        return event

    def trouble(self, part: str, error: BaseException) -> None:
        """Note that a part of the observation failed, once for each error."""
        text = f"{part}: {type(error).__name__}: {error}"[:300]
        if text not in self._troubles and len(self._troubles) < 50:
            self._troubles.add(text)
            self.add("trouble", reason=text)

    def flush(self) -> None:
        """Write the waiting events. Values are taken from devices only here."""
        if not self._has_step:
            if len(self._waiting) > EVENTS_KEPT_WITHOUT_STEP:  # a process that never takes a step
                del self._waiting[:]
            return
        events, self._waiting = self._waiting, []
        # The file is opened at the first flush after a step: processes that never train leave none.
        if self._path is None:
            rank = int(os.environ.get("RANK", "0"))
            self._path = self.folder / f"trace-{time.time_ns()}-{rank}-{os.getpid()}.jsonl"
            events.insert(0, self._start(rank))
        try:
            read_late(events)
        except Exception:  # a value that cannot be read must not cost the others
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

    def _start(self, rank: int) -> dict[str, object]:
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
    """Replace the tensors and `Late` values in events by JSON values, with one transfer for each device."""
    # 1. Walk over all events, and collect the tensors and, for each value, a function that writes it later.
    tensors: list[torch.Tensor] = []
    writers: list[Callable[[list[list[float]]], None]] = []

    def visit(holder: Any, key: Any, value: object) -> None:
        if type(value) in PLAIN:  # most values are, and `isinstance` of a tensor is slow
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
    # 2. Read all tensors. 3. Write.
    lists = _numbers(tensors)
    for write in writers:
        write(lists)


def _numbers(tensors: list[torch.Tensor]) -> list[list[float]]:
    """Return the elements of tensors as floats, read with one transfer for each device."""
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
        # One copy from the device: float64 holds float32 and integers up to 2^53 exactly, so fingerprints have 48 bits.
        flat = torch.cat([tensors[i].detach().reshape(-1).double() for i in positions]).tolist()
        start = 0
        for i in positions:
            end = start + tensors[i].numel()
            lists[i] = flat[start:end]
            start = end
    return lists
