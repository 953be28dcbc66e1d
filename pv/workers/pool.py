"""Runs tasks in parallel workers and returns the records, the output and the exit status of each."""

import contextlib
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

from pv.engines.trial import Output
from pv.errors import WorkerLost
from pv.workers import tree
from pv.workers.launch import Ended, Launcher, Started, launcher
from pv.workers.tasks import Body

KEEP = 32 << 10
TICK_S = 0.02
MAX_LINE = 4 << 20
LOSSES = 5
"""Number of times in a row that the fork server may be killed without any task ending in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task for a worker, and its limits. `key` is for the caller."""

    key: Any
    body: Body
    limit_s: float
    memory_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The end of a task. `stopped` names the limit that ended it; `status` is the exit status, None if never known."""

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
    """A context manager that leaves no process and no file of its tasks behind, however it is left."""

    def __init__(self, preload: list[str], jobs: int, *, spawn: bool = False) -> None:
        self.preload, self.jobs, self.spawn = preload, jobs, spawn
        self.work = Path(tempfile.mkdtemp(prefix="pv-"))
        self.pending: deque[Task] = deque()
        self.suspects: deque[Task] = deque()
        """Tasks that ran when the fork server was killed: each of them is run again, alone."""
        self.live: dict[str, _Live] = {}
        self.selector = selectors.DefaultSelector()
        self.losses = self.count = 0
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
        """Remove and return the tasks that have not started."""
        dropped = list(self.pending)
        self.pending.clear()
        return dropped

    def scratch(self) -> Path:
        """Return a new directory that lives as long as the pool."""
        self.count += 1
        path = self.work / f"task-{self.count}"
        path.mkdir()
        return path

    def replies(self, on_start: Callable[[Task], None] | None = None) -> Iterator[tuple[Task, Reply]]:
        """Yield each task with its reply as it ends; tasks may be submitted meanwhile."""
        while self.pending or self.suspects or self.live:
            self._launch()
            try:
                self._start_pending(on_start)
                self._wait()
                self._watch_limits()
            except WorkerLost:
                self._lost()
            for live in [live for live in self.live.values() if live.ended]:
                self.losses = 0 if live.status is not None else self.losses
                yield live.task, self._reply(live)

    def _launch(self) -> None:
        if self._launcher is None:
            self._launcher = launcher(self.preload, self.work, spawn=self.spawn)
            if self._launcher.fileno() is not None:
                self.selector.register(self._launcher.fileno() or 0, selectors.EVENT_READ, None)

    def _start_pending(self, on_start: Callable[[Task], None] | None) -> None:
        while (task := self._next()) is not None:
            self._start(task)
            if on_start is not None:
                on_start(task)

    def _next(self) -> Task | None:
        if self.suspects:
            return None if self.live else self.suspects.popleft()
        return self.pending.popleft() if self.pending and len(self.live) < self.jobs else None

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
            self._launcher.start(
                {**task.body.as_json(), "id": live.id, "scratch": str(scratch)}, evidence_write, output_write
            )
        except WorkerLost:
            self._forget(live)
            self.suspects.appendleft(task)
            raise
        finally:
            os.close(evidence_write)
            os.close(output_write)

    def _wait(self) -> None:
        for key, _ in self.selector.select(TICK_S):
            if key.data is not None:
                take, live = key.data
                take(live)
        self._take_events()

    def _take_events(self) -> None:
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
        """Start over after the fork server was killed: blame a task that ran alone, and run all others again, alone."""
        assert self._launcher is not None
        with contextlib.suppress(WorkerLost):
            while True:
                self._take_events()
        self.selector.unregister(self._launcher.fileno() or 0)
        self._launcher.close()
        self._launcher = None
        self.losses += 1
        if self.losses > LOSSES:
            raise WorkerLost(f"the fork server was killed {self.losses} times in a row; giving up")
        self.work.mkdir(exist_ok=True)
        lost = [live for live in self.live.values() if not live.ended]
        if len(lost) == 1:
            lost[0].ended = True
            return
        self.suspects.extend(live.task for live in lost)
        for live in lost:
            self._forget(live)

    def _forget(self, live: _Live) -> None:
        self._close_pipes(live)
        del self.live[live.id]
        shutil.rmtree(self.work / live.id, ignore_errors=True)

    def _reply(self, live: _Live) -> Reply:
        # A grandchild may still hold the pipes open, so the worker's end is the end; what it wrote is there to read.
        self._take_evidence(live)
        self._take_output(live)
        self._forget(live)
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
        """Close a pipe once and forget its number, which the next pipe may get."""
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
