"""Runs tasks in workers, as many at once as there are cores, and gives back what each said and how it ended."""

import json
import os
import selectors
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pv.errors import WorkerLost
from pv.evidence import Output
from pv.workers import tree
from pv.workers.launch import Ended, Launcher, Started, launcher

KEEP = 32 << 10
TICK_S = 0.02
MAX_LINE = 4 << 20
RESTARTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One thing for a worker to do, and its limits. `body` is JSON; `key` is the caller's own."""

    key: Any
    body: dict[str, Any]
    limit_s: float
    memory_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """How a task ended. `stopped` names the limit that ended it; `status` is the exit status, None if never known."""

    records: tuple[dict[str, Any], ...]
    status: int | None
    stopped: str
    seconds: float
    peak_mib: int
    output: Output
    limit_s: float
    memory_mib: int

    def last(self, kind: str) -> dict[str, Any] | None:
        return next((r for r in reversed(self.records) if r.get("kind") == kind), None)


@dataclass(slots=True)
class _Live:
    task: Task
    id: str
    evidence_fd: int
    output_fd: int
    start: float
    pid: int = 0
    stopped: str = ""
    peak: int = 0
    status: int | None = None
    ended: bool = False
    partial: bytearray = field(default_factory=bytearray)
    records: list[dict[str, Any]] = field(default_factory=list)
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    printed: int = 0


class Pool:
    """A context manager: on leaving it, however that happens, no process and no file of its tasks is left."""

    def __init__(self, preload: list[str], jobs: int, *, spawn: bool = False) -> None:
        self.preload, self.jobs, self.spawn = preload, jobs, spawn
        self.work = Path(tempfile.mkdtemp(prefix="pv-"))
        self.pending: deque[Task] = deque()
        self.live: dict[str, _Live] = {}
        self.selector = selectors.DefaultSelector()
        self.restarts = self.count = 0
        self._launcher: Launcher | None = None

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._launcher is not None:
                self._launcher.close()
        finally:
            for live in self.live.values():
                self._close_pipes(live)
            self.selector.close()
            shutil.rmtree(self.work, ignore_errors=True)

    @property
    def note(self) -> str:
        return self._launcher.note if self._launcher is not None else ""

    def submit(self, task: Task) -> None:
        self.pending.append(task)

    def drop_pending(self) -> list[Task]:
        """Forgets the tasks that have not started, and says which they were."""
        dropped = list(self.pending)
        self.pending.clear()
        return dropped

    def scratch(self) -> Path:
        """A new directory that lives as long as the pool."""
        self.count += 1
        path = self.work / f"task-{self.count}"
        path.mkdir()
        return path

    def replies(self, on_start: Callable[[Task], None] | None = None) -> Iterator[tuple[Task, Reply]]:
        """Each task with its reply, as they end; tasks may be submitted meanwhile."""
        while self.pending or self.live:
            self._launch()
            try:
                self._start_pending(on_start)
                self._wait()
                self._watch_limits()
            except WorkerLost:
                self._lost()
            for live in [live for live in self.live.values() if live.ended]:
                yield live.task, self._reply(live)

    def _launch(self) -> None:
        if self._launcher is None:
            self._launcher = launcher(self.preload, self.work, spawn=self.spawn)
            if self._launcher.fileno() is not None:
                self.selector.register(self._launcher.fileno() or 0, selectors.EVENT_READ, None)

    def _start_pending(self, on_start: Callable[[Task], None] | None) -> None:
        while self.pending and len(self.live) < self.jobs:
            task = self.pending.popleft()
            self._start(task)
            if on_start is not None:
                on_start(task)

    def _start(self, task: Task) -> None:
        assert self._launcher is not None
        evidence_read, evidence_write = os.pipe()
        output_read, output_write = os.pipe()
        self.count += 1
        live = _Live(task, f"t{self.count}", evidence_read, output_read, time.monotonic())
        for fd, take in ((evidence_read, self._take_evidence), (output_read, self._take_output)):
            os.set_blocking(fd, False)
            self.selector.register(fd, selectors.EVENT_READ, (take, live))
        self.live[live.id] = live
        scratch = self.work / live.id
        scratch.mkdir()
        try:
            self._launcher.start({**task.body, "id": live.id, "scratch": str(scratch)}, evidence_write, output_write)
        finally:
            os.close(evidence_write)
            os.close(output_write)

    def _wait(self) -> None:
        for key, _ in self.selector.select(TICK_S):
            if key.data is not None:
                take, live = key.data
                take(live)
        assert self._launcher is not None
        for event in self._launcher.events():
            live = self.live[event.task]
            if isinstance(event, Started):
                live.pid, live.start = event.pid, time.monotonic()
            elif isinstance(event, Ended):
                live.status, live.ended = event.status, True

    def _watch_limits(self) -> None:
        assert self._launcher is not None
        now = time.monotonic()
        for live in self.live.values():
            if live.ended or live.stopped or not live.pid:
                continue
            live.peak = max(live.peak, tree.private_bytes(live.pid) >> 20)
            if live.peak > live.task.memory_mib:
                live.stopped = "memory"
            elif now - live.start > live.task.limit_s:
                live.stopped = "time"
            if live.stopped:
                self._launcher.kill(live.id)

    def _lost(self) -> None:
        """The fork server died: its tasks are lost, the others go on under a new one."""
        assert self._launcher is not None
        self.selector.unregister(self._launcher.fileno() or 0)
        self._launcher.close()
        self._launcher = None
        for live in self.live.values():
            live.ended = True
        self.restarts += 1
        if self.restarts > RESTARTS:
            raise WorkerLost(f"the fork server was killed {self.restarts} times; giving up")
        self.work.mkdir(exist_ok=True)

    def _reply(self, live: _Live) -> Reply:
        # A grandchild may still hold the pipes open, so the worker's end is the end; what it wrote is there to read.
        self._take_evidence(live)
        self._take_output(live)
        self._close_pipes(live)
        del self.live[live.id]
        shutil.rmtree(self.work / live.id, ignore_errors=True)
        output = Output(
            head=live.head.decode("utf-8", "replace"),
            tail=live.tail.decode("utf-8", "replace"),
            size=live.printed,
            dropped=live.printed - len(live.head) - len(live.tail),
        )
        return Reply(
            records=tuple(live.records),
            status=live.status,
            stopped=live.stopped,
            seconds=time.monotonic() - live.start,
            peak_mib=live.peak,
            output=output,
            limit_s=live.task.limit_s,
            memory_mib=live.task.memory_mib,
        )

    def _close_pipes(self, live: _Live) -> None:
        self._close(live, "evidence_fd")
        self._close(live, "output_fd")

    def _close(self, live: _Live, pipe: str) -> None:
        """Closes a pipe once and forgets its number, which the next pipe will get."""
        fd = getattr(live, pipe)
        if fd >= 0:
            self.selector.unregister(fd)
            os.close(fd)
            setattr(live, pipe, -1)

    def _read(self, live: _Live, pipe: str) -> Iterator[bytes]:
        for _ in range(256):
            fd = getattr(live, pipe)
            try:
                data = os.read(fd, 1 << 16) if fd >= 0 else None
            except BlockingIOError:
                return
            if data is None:
                return
            if not data:
                self._close(live, pipe)
                return
            yield data

    def _take_evidence(self, live: _Live) -> None:
        for data in self._read(live, "evidence_fd"):
            live.partial += data
            if b"\n" in data:
                *lines, rest = bytes(live.partial).split(b"\n")
                live.partial = bytearray(rest)
                live.records += [record for line in lines if (record := _record(line)) is not None]
            elif len(live.partial) > MAX_LINE:
                live.partial.clear()

    def _take_output(self, live: _Live) -> None:
        for data in self._read(live, "output_fd"):
            live.printed += len(data)
            room = KEEP - len(live.head)
            live.head += data[:room]
            live.tail = (live.tail + data[room:])[-KEEP:] if room < len(data) else live.tail


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
