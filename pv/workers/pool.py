"""Runs tasks in parallel workers and returns the records, the output and the exit status of each."""

import contextlib
import os
import selectors
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from pv.errors import UsageError, WorkerLost
from pv.workers import tree
from pv.workers.forking import launcher
from pv.workers.launch import Ended, Launcher, Started
from pv.workers.live import Live, Reply, Task

TICK_S, USE_S = 0.02, 0.05
"""Seconds between two looks at what has ended, and at what tasks use, which reads /proc for every thread."""
LOSSES = 5
"""Number of times in a row that the fork server may be killed without any task ending in between."""


def default_jobs() -> int:
    """Return the number of workers that run at a time: one more than there are cores, since some tasks wait."""
    return cores() + 1


def refuse_optimized() -> None:
    """Raise `UsageError` if this Python removes assertions, since its workers would too."""
    if sys.flags.optimize:
        message = f"Python removes every `assert` (-O, or PYTHONOPTIMIZE={sys.flags.optimize}), so no claim could fail"
        raise UsageError(f"{message}; start it without -O, and unset PYTHONOPTIMIZE")


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Pool:
    """A context manager that leaves no process and no file of its tasks behind, however it is left."""

    def __init__(self, preload: list[str], jobs: int, *, spawn: bool = False) -> None:
        self.preload, self.jobs, self.spawn = preload, jobs, spawn
        self.work = Path(tempfile.mkdtemp(prefix="pv-"))
        self.pending: deque[Task] = deque()
        self.suspects: deque[Task] = deque()
        """Tasks that ran when the fork server was killed: each of them is run again, alone."""
        self.live: dict[str, Live] = {}
        self.selector = selectors.DefaultSelector()
        self.losses = self.count = 0
        self.measured = 0.0
        self._launcher: Launcher | None = None
        self._ready = False

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._launcher is not None:
                self._launcher.close()
        finally:
            for live in self.live.values():
                live.close()
            self.selector.close()
            shutil.rmtree(self.work, ignore_errors=True)

    @property
    def note(self) -> str:
        return self._launcher.note if self._launcher is not None else ""

    @property
    def loading(self) -> bool:
        """Whether a fork server is loading its libraries, for which `replies` waits."""
        return self._launcher is not None and not self._ready and self._launcher.loading

    def begin(self) -> Launcher:
        """Let the fork server load its libraries meanwhile, if it does not yet."""
        if self._launcher is None:
            self._launcher = launcher(self.preload, self.work, spawn=self.spawn)
            self._ready = False
        return self._launcher

    def submit(self, task: Task) -> None:
        self.begin()
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
            self._advance(on_start, TICK_S)
            for live in [live for live in self.live.values() if live.ended]:
                self.losses = 0 if live.status is not None else self.losses
                reply = live.reply(self.work / live.id)
                self._forget(live)
                yield live.task, reply

    def poll(self, on_start: Callable[[Task], None] | None = None) -> bool:
        """Start the tasks for which there is room. Return whether one has ended, which `replies` yields next."""
        if not self.loading and (self.pending or self.suspects or self.live):
            self._advance(on_start, 0.0)
        return any(live.ended for live in self.live.values())

    def _advance(self, on_start: Callable[[Task], None] | None, wait_s: float) -> None:
        self._launch()
        try:
            self._start_pending(on_start)
            self._wait(wait_s)
            self._watch_limits()
        except WorkerLost:
            self._lost()

    def _launch(self) -> None:
        launching = self.begin()
        if not self._ready:
            self._launcher = launching.ready()
            self._ready = True
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
        return self.pending.popleft() if self.pending and self._has_room() else None

    def _has_room(self) -> bool:
        """Return whether a task may start. One that waits leaves its place, unless tasks are to run one at a time."""
        at_most = self.jobs if self.jobs == 1 else 2 * self.jobs
        return sum(not live.waits for live in self.live.values()) < self.jobs and len(self.live) < at_most

    def _start(self, task: Task) -> None:
        assert self._launcher is not None
        self.count += 1
        live = Live(task, f"t{self.count}", self.selector)
        self.live[live.id] = live
        scratch = self.work / live.id
        scratch.mkdir()
        body = {**task.body.as_json(), "id": live.id, "scratch": str(scratch)}
        try:
            self._launcher.start(body, live.evidence.write_fd, live.output.write_fd)
        except WorkerLost:
            self._forget(live)
            self.suspects.appendleft(task)
            raise
        finally:
            live.close_write_ends()

    def _wait(self, wait_s: float) -> None:
        for key, _ in self.selector.select(wait_s):
            if key.data is not None:
                key.data()
        self._take_events()

    def _take_events(self) -> None:
        assert self._launcher is not None
        for event in self._launcher.events():
            live = self.live[event.task]
            if isinstance(event, Started):
                live.pid, live.start = event.pid, time.monotonic()
                live.seen = live.start
            elif isinstance(event, Ended):
                live.status, live.ended = event.status, True

    def _watch_limits(self) -> None:
        assert self._launcher is not None
        now = time.monotonic()
        if now - self.measured < USE_S:
            return
        self.measured = now
        for live in self.live.values():
            if live.ended or live.stopped or not live.pid:
                continue
            live.look(tree.use(live.pid), now)
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

    def _forget(self, live: Live) -> None:
        live.close()
        del self.live[live.id]
        shutil.rmtree(self.work / live.id, ignore_errors=True)
