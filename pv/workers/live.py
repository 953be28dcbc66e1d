"""A running task: its pipes, the output received through them, and its reply."""

import json
import os
import selectors
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pv.engines.stream import SLOT, current_arguments
from pv.engines.trial import Output
from pv.workers import tree
from pv.workers.tasks import Body

WAITS_S = 0.5
"""A task that has used no CPU time for so long waits, as for a time limit, and leaves its place to another one."""
KEEP = 32 << 10
MAX_LINE = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task for a worker, and its limits. `key` is for the caller.

    limit_s: of CPU time, and of time in which no thread of the task runs or is ready to run: on busy cores a task takes
    longer, but uses and waits no longer.
    """

    key: Any
    body: Body
    limit_s: float
    memory_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The end of a task. `stopped` names the limit that ended it; `status` is the exit status, None if never known.

    seconds: of wall time.
    """

    records: tuple[dict[str, Any], ...]
    status: int | None
    stopped: str
    seconds: float
    cpu_s: float
    peak_mib: int
    output: Output
    limit_s: float
    memory_mib: int
    current_arguments: tuple[dict[str, Any], bool] | None = None
    """The arguments of the call in which the worker ended, and whether they are exact."""

    def last(self, kind: str) -> dict[str, Any] | None:
        return next((r for r in reversed(self.records) if r.get("kind") == kind), None)


class Pipe:
    """A pipe from a worker. The selector's data is `take`, which is called when there is something to read."""

    def __init__(self, selector: selectors.BaseSelector, take: Callable[[], None]) -> None:
        self.selector = selector
        self.fd, self.write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        selector.register(self.fd, selectors.EVENT_READ, take)

    def read(self) -> Iterator[bytes]:
        """Yield what is there to read, 16 MiB at most; close the pipe at its end."""
        for _ in range(256):
            try:
                data = os.read(self.fd, 1 << 16) if self.fd >= 0 else None
            except BlockingIOError:
                return
            if data is None:
                return
            if not data:
                self.close()
                return
            yield data

    def close(self) -> None:
        """Close the reading end once and forget its number, which the next pipe may get."""
        if self.fd >= 0:
            self.selector.unregister(self.fd)
            os.close(self.fd)
            self.fd = -1


class Live:
    """A task that was started. Only the first and the last KEEP bytes of its output are kept."""

    def __init__(self, task: Task, id_: str, selector: selectors.BaseSelector) -> None:
        self.task, self.id = task, id_
        self.evidence = Pipe(selector, self.take_evidence)
        self.output = Pipe(selector, self.take_output)
        self.start = self.seen = time.monotonic()
        self.cpu_s = self.idle_s = self.rest_s = 0.0
        self.pid = self.peak = 0
        self.stopped = ""
        self.status: int | None = None
        self.ended = False
        self.records: list[dict[str, Any]] = []
        self._partial, self._head, self._tail = bytearray(), bytearray(), bytearray()
        self._printed = 0

    def take_evidence(self) -> None:
        for data in self.evidence.read():
            self._partial += data
            if b"\n" in data:
                *lines, rest = bytes(self._partial).split(b"\n")
                self._partial = bytearray(rest)
                self.records += [record for line in lines if (record := _record(line)) is not None]
            elif len(self._partial) > MAX_LINE:
                self._partial.clear()

    def take_output(self) -> None:
        for data in self.output.read():
            self._printed += len(data)
            room = KEEP - len(self._head)
            self._head += data[:room]
            self._tail = (self._tail + data[room:])[-KEEP:] if room < len(data) else self._tail

    def look(self, use: tree.Use, now: float) -> None:
        """Add what the task has used and waited since the last look, and set `stopped` once a limit is exceeded."""
        waited = now - self.seen if use.cpu_s <= self.cpu_s and not use.active else 0.0
        self.idle_s += waited
        self.rest_s = self.rest_s + waited if waited else 0.0
        self.seen = now
        self.cpu_s, self.peak = max(self.cpu_s, use.cpu_s), max(self.peak, use.private_bytes >> 20)
        exceeded = {
            "memory": self.peak > self.task.memory_mib,
            "time": self.cpu_s > self.task.limit_s,
            "idle": self.idle_s > self.task.limit_s,
        }
        self.stopped = next((name for name, is_exceeded in exceeded.items() if is_exceeded), "")

    @property
    def waits(self) -> bool:
        """Whether the task has used no CPU time for some time."""
        return self.rest_s >= WAITS_S

    def close_write_ends(self) -> None:
        for pipe in (self.evidence, self.output):
            os.close(pipe.write_fd)

    def close(self) -> None:
        for pipe in (self.evidence, self.output):
            pipe.close()

    def reply(self, scratch: Path) -> Reply:
        """Read what the task has written, in its folder too, and return its reply.

        A grandchild may still hold the pipes open, so the worker's end is the end.
        """
        self.take_evidence()
        self.take_output()
        return Reply(
            records=tuple(self.records),
            status=self.status,
            stopped=self.stopped,
            seconds=time.monotonic() - self.start,
            cpu_s=self.cpu_s,
            peak_mib=self.peak,
            output=self._output(),
            limit_s=self.task.limit_s,
            memory_mib=self.task.memory_mib,
            current_arguments=current_arguments(scratch / SLOT),
        )

    def _output(self) -> Output:
        return Output(
            head=self._head.decode("utf-8", "replace"),
            tail=self._tail.decode("utf-8", "replace"),
            size=self._printed,
            dropped=self._printed - len(self._head) - len(self._tail),
        )


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
