"""Tasks that run in workers: their limits, pipes and output, and the reply that is built at the end of a task."""

import json
import os
import selectors
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pv.engines.stream import SLOT, Record, current_arguments
from pv.engines.trial import Output
from pv.workers import tree
from pv.workers.tasks import Body

WAITS_S = 0.5
"""Seconds of idle time after which a task counts as waiting, so that another task may run beside it."""
KEPT_BYTES = 32 << 10
"""Number of bytes that are kept at the start of the output, and the same number at its end."""
MAX_LINE = 4 << 20
"""Bytes of an incomplete line that are kept; a longer line is dropped, unless its end arrives in the next read."""
CHUNK = 1 << 16
"""Bytes of one read from a pipe."""
MAX_CHUNKS = 256
"""Largest number of reads in a row, so that a worker that never stops printing does not block the parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task for a worker, and its limits.

    Attributes:
        key: An object by which the caller recognises the task.
        body: The message to the worker.
        limit_s: Limit in seconds of the CPU time, and separately of the idle time. A task is idle while none of its
            threads runs, is ready to run, or waits for a disk. Wall time is not limited, because other processes that
            use the cores make it longer.
        memory_mib: Limit in MiB of the private memory of the task and its child processes.
    """

    key: Any
    body: Body
    limit_s: float
    memory_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The result of a task that has ended.

    Attributes:
        records: The JSON objects that the worker sent.
        status: The exit status in the encoding of `os.wait`; None if the status was never reported.
        stopped: The limit that ended the task (`time`, `idle` or `memory`); "" for none.
        seconds: Wall time in seconds.
        cpu_s: CPU time of the task and its child processes, in seconds.
        peak_mib: Largest private memory of the task and its child processes, in MiB.
        output: The start and the end of the output.
        limit_s: `Task.limit_s` of the task.
        memory_mib: `Task.memory_mib` of the task.
        current_arguments: The arguments of the call during which the worker ended, and whether they are exact.
    """

    records: tuple[Record, ...]
    status: int | None
    stopped: str
    seconds: float
    cpu_s: float
    peak_mib: int
    output: Output
    limit_s: float
    memory_mib: int
    current_arguments: tuple[Record, bool] | None = None

    def last(self, kind: str) -> Record | None:
        """Return the last record of a kind; None if there is none."""
        return next((record for record in reversed(self.records) if record.get("kind") == kind), None)


class Pipe:
    """The reading end of a pipe from a worker, registered with a selector.

    Args:
        selector: The selector.
        on_readable: Called by the pool when the pipe has data to read; registered as the data of the descriptor.
    """

    def __init__(self, selector: selectors.BaseSelector, on_readable: Callable[[], None]) -> None:
        self.selector = selector
        self.fd, self.write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        selector.register(self.fd, selectors.EVENT_READ, on_readable)

    def read(self) -> Iterator[bytes]:
        """Yield the bytes that can be read now, at most 16 MiB. Close the reading end at the end of the data."""
        for _ in range(MAX_CHUNKS):
            if self.fd < 0:
                return
            try:
                data = os.read(self.fd, CHUNK)
            except BlockingIOError:
                return
            if not data:
                self.close()
                return
            yield data

    def close(self) -> None:
        """Close the reading end. A second call does nothing, because a new pipe may already use the same descriptor."""
        if self.fd >= 0:
            self.selector.unregister(self.fd)
            os.close(self.fd)
            self.fd = -1


class RunningTask:
    """A task whose process was started. The first and the last `KEPT_BYTES` of the output are kept."""

    def __init__(self, task: Task, id_: str, selector: selectors.BaseSelector) -> None:
        self.task, self.id = task, id_
        self.evidence = Pipe(selector, self.read_evidence)
        self.output = Pipe(selector, self.read_output)
        self.start = self.measured = time.monotonic()
        # Idle time is counted twice: `idle_s` in total, for the limit; `pause_s` since the last activity, for `waits`.
        self.cpu_s = self.idle_s = self.pause_s = 0.0
        self.pid = self.peak_mib = 0
        self.stopped = ""
        self.status: int | None = None
        self.ended = False
        self.records: list[Record] = []
        self._partial_line, self._head, self._tail = bytearray(), bytearray(), bytearray()
        self._printed = 0

    def read_evidence(self) -> None:
        """Read the records that can be read now."""
        for data in self.evidence.read():
            self._partial_line += data
            if b"\n" in data:
                *lines, rest = bytes(self._partial_line).split(b"\n")
                self._partial_line = bytearray(rest)
                self.records += [record for line in lines if (record := _record(line)) is not None]
            elif len(self._partial_line) > MAX_LINE:
                self._partial_line.clear()

    def read_output(self) -> None:
        """Read the output that can be read now, and keep its head and its tail."""
        for data in self.output.read():
            self._printed += len(data)
            room = KEPT_BYTES - len(self._head)
            self._head += data[:room]
            if len(data) > room:
                self._tail = (self._tail + data[room:])[-KEPT_BYTES:]

    def measure(self, usage: tree.Usage, now: float) -> None:
        """Update CPU time, idle time and memory, and set `stopped` if a limit is exceeded.

        Args:
            usage: The current usage of the process tree.
            now: The current time by `time.monotonic`.
        """
        # A task that waits for a core or a disk is not idle.
        if usage.cpu_s > self.cpu_s or usage.active:
            self.pause_s = 0.0
        else:
            self.pause_s += now - self.measured
            self.idle_s += now - self.measured
        self.measured = now
        # `usage.cpu_s` falls if a child has ended and the kernel has not yet added the time of the child to its parent.
        self.cpu_s = max(self.cpu_s, usage.cpu_s)
        self.peak_mib = max(self.peak_mib, usage.private_bytes >> 20)
        exceeded = {
            "memory": self.peak_mib > self.task.memory_mib,
            "time": self.cpu_s > self.task.limit_s,
            "idle": self.idle_s > self.task.limit_s,
        }
        self.stopped = next((name for name, is_exceeded in exceeded.items() if is_exceeded), "")

    @property
    def waits(self) -> bool:
        """Return whether the task has been idle for the last `WAITS_S` seconds."""
        return self.pause_s >= WAITS_S

    def close_write_ends(self) -> None:
        """Close the writing ends in this process, after the worker has inherited them."""
        for pipe in (self.evidence, self.output):
            os.close(pipe.write_fd)

    def close(self) -> None:
        """Close the reading ends of both pipes."""
        for pipe in (self.evidence, self.output):
            pipe.close()

    def reply(self, scratch: Path) -> Reply:
        """Read the remaining records and output of a task that has ended, and return its reply.

        Args:
            scratch: The scratch folder of the task.
        """
        # Read only the available bytes, not to the end of the pipes: a grandchild may keep the pipes open.
        self.read_evidence()
        self.read_output()
        return Reply(
            records=tuple(self.records),
            status=self.status,
            stopped=self.stopped,
            seconds=time.monotonic() - self.start,
            cpu_s=self.cpu_s,
            peak_mib=self.peak_mib,
            output=Output(
                head=self._head.decode("utf-8", "replace"),
                tail=self._tail.decode("utf-8", "replace"),
                size=self._printed,
                dropped=self._printed - len(self._head) - len(self._tail),
            ),
            limit_s=self.task.limit_s,
            memory_mib=self.task.memory_mib,
            current_arguments=current_arguments(scratch / SLOT),
        )


def _record(line: bytes) -> Record | None:
    """Return the record of a line; None if the line is no JSON object, such as the cut line of a killed worker."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
