"""Run tasks in parallel workers, and return the records, the output and the exit status of every task.

`Pool` runs tasks whose workers import the same libraries. `PoolCache` keeps pools open for several validations.
"""

import contextlib
import os
import selectors
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

from pv.errors import UsageError, WorkerLost
from pv.workers import tree
from pv.workers.launch import Ended, Launcher, Started, start_launcher
from pv.workers.running_task import Reply, RunningTask, Task

TICK_S = 0.02
"""Maximum number of seconds to wait for output or the end of a task, before the limits are checked again."""
MEASURE_S = 0.05
"""Minimum number of seconds between two measurements of the tasks; a measurement reads /proc for every thread."""
MAX_LOSSES = 5
"""How many times in a row the fork server may be killed while no task ends with an exit status."""

OnStart = Callable[[Task], None]
"""Called with every task when it starts."""


def default_jobs() -> int:
    """Return the number of tasks that compute at a time: one more than there are cores, since some tasks wait."""
    return cores() + 1


def refuse_optimized() -> None:
    """Raise `UsageError` if this Python process removes assertions, because its workers would do the same."""
    if sys.flags.optimize:
        message = f"Python removes every `assert` (-O, or PYTHONOPTIMIZE={sys.flags.optimize}), so no claim could fail"
        raise UsageError(f"{message}; start it without -O, and unset PYTHONOPTIMIZE")


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Pool:
    """A context manager that runs tasks in parallel workers.

    Its exit, also after an error or an interrupt, kills all processes of tasks and removes all their files.

    Args:
        preload: The modules that every worker needs; a fork server imports these once.
        jobs: The number of tasks that compute at a time.
        spawn: Start a new interpreter for every task, without a fork server.
    """

    def __init__(self, preload: list[str], jobs: int, *, spawn: bool = False) -> None:
        self.preload, self.jobs, self.spawn = preload, jobs, spawn
        self.work = Path(tempfile.mkdtemp(prefix="pv-"))
        self.pending: deque[Task] = deque()
        self.suspects: deque[Task] = deque()
        """Tasks that ran when the fork server was killed. They are run again, one at a time."""
        self.running: dict[str, RunningTask] = {}
        self.selector = selectors.DefaultSelector()
        self.losses = 0
        """How many times the fork server was killed since a task last ended with an exit status."""
        self.folders = 0
        """The number of folders that were created in `work`, for unique names."""
        self.measured = 0.0
        """The time of the last measurement of the tasks."""
        self._launcher: Launcher | None = None
        self._ready = False

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._launcher is not None:
                self._launcher.close()
        finally:
            for running in self.running.values():
                running.close()
            self.selector.close()
            shutil.rmtree(self.work, ignore_errors=True)

    @property
    def note(self) -> str:
        """The note to the user if tasks are spawned and not forked, else ""."""
        return self._launcher.note if self._launcher is not None else ""

    @property
    def loading(self) -> bool:
        """Whether a fork server is still loading its libraries, so that `replies` would wait."""
        return self._launcher is not None and not self._ready and self._launcher.loading

    def begin(self) -> Launcher:
        """Return the launcher of tasks, and start one if there is none. It loads libraries in the background."""
        if self._launcher is None:
            self._launcher = start_launcher(self.preload, self.work, spawn=self.spawn)
            self._ready = False
        return self._launcher

    def submit(self, task: Task) -> None:
        """Add a task. A later call of `replies` or `poll` starts the task when a worker is free."""
        self.begin()
        self.pending.append(task)

    def drop_pending(self) -> list[Task]:
        """Remove and return the tasks that have not started."""
        dropped = list(self.pending)
        self.pending.clear()
        return dropped

    def new_folder(self) -> Path:
        """Create a folder and return its path. It is removed with the pool."""
        self.folders += 1
        path = self.work / f"task-{self.folders}"
        path.mkdir()
        return path

    def replies(self, on_start: OnStart | None = None) -> Iterator[tuple[Task, Reply]]:
        """Yield every task with its reply when the task ends, until no task is left; tasks may be submitted meanwhile.

        Raises:
            WorkerLost: The fork server did not start, or was killed more than `MAX_LOSSES` times in a row.
        """
        while self.pending or self.suspects or self.running:
            self._advance(on_start, TICK_S)
            for ended in [running for running in self.running.values() if running.ended]:
                self.losses = 0 if ended.status is not None else self.losses
                reply = ended.reply(self.work / ended.id)
                self._remove(ended)
                yield ended.task, reply

    def poll(self, on_start: OnStart | None = None) -> bool:
        """Start tasks if workers are free. Return whether a task has ended, which `replies` then yields next."""
        if not self.loading and (self.pending or self.suspects or self.running):
            self._advance(on_start, 0.0)
        return any(running.ended for running in self.running.values())

    def _advance(self, on_start: OnStart | None, wait_s: float) -> None:
        """Start tasks, wait at most `wait_s` seconds for output or the end of a task, and stop tasks over a limit."""
        client = self.begin()
        if not self._ready:
            self._launcher = client.ready()
            self._ready = True
            if (fd := self._launcher.fileno()) is not None:
                self.selector.register(fd, selectors.EVENT_READ, None)
        try:
            while (task := self._next_task()) is not None:
                self._start(task)
                if on_start is not None:
                    on_start(task)
            for key, _ in self.selector.select(wait_s):
                if key.data is not None:  # the function that reads a pipe; None for the socket of the fork server
                    key.data()
            self._handle_events()
            self._stop_at_limits()
        except WorkerLost:
            self._restart_server()

    def _next_task(self) -> Task | None:
        """Remove and return the next task that may start now; None if there is none."""
        # A suspect runs alone, so that it is known which task kills the fork server.
        if self.suspects:
            return None if self.running else self.suspects.popleft()
        return self.pending.popleft() if self.pending and self._has_room() else None

    def _has_room(self) -> bool:
        """Return whether another task may start: fewer than `jobs` tasks compute, and not too many wait."""
        # Tasks that wait use memory and may all continue at the same time, so at most twice as many tasks as jobs run.
        # With one job, tasks run one at a time.
        maximum = self.jobs if self.jobs == 1 else 2 * self.jobs
        return sum(not running.waits for running in self.running.values()) < self.jobs and len(self.running) < maximum

    def _start(self, task: Task) -> None:
        """Start the process of a task."""
        assert self._launcher is not None
        self.folders += 1
        running = RunningTask(task, f"t{self.folders}", self.selector)
        self.running[running.id] = running
        scratch = self.work / running.id
        scratch.mkdir()
        message = {**task.body.as_json(), "id": running.id, "scratch": str(scratch)}
        try:
            self._launcher.start(message, running.evidence.write_fd, running.output.write_fd)
        except WorkerLost:
            self._remove(running)
            self.suspects.appendleft(task)
            raise
        finally:
            running.close_write_ends()

    def _handle_events(self) -> None:
        """Read the events of the launcher, and update the running tasks."""
        assert self._launcher is not None
        for event in self._launcher.events():
            running = self.running[event.task]
            match event:
                case Started(pid=pid):
                    running.pid, running.start = pid, time.monotonic()
                    running.measured = running.start
                case Ended(status=status):
                    running.status, running.ended = status, True

    def _stop_at_limits(self) -> None:
        """Measure the running tasks, and kill tasks that exceed a limit."""
        assert self._launcher is not None
        now = time.monotonic()
        if now - self.measured < MEASURE_S:
            return
        self.measured = now
        for running in self.running.values():
            if running.ended or running.stopped or not running.pid:
                continue
            running.measure(tree.usage(running.pid), now)
            if running.stopped:
                self._launcher.kill(running.id)

    def _restart_server(self) -> None:
        """Prepare the start of a new fork server after the old one was killed.

        A task can kill the server, for example by a signal to its process group, or by using up the memory. If one task
        ran, this task is the cause, and it ends without a status. If several tasks ran, any of them may be the cause:
        they are suspects, and run again one at a time.
        """
        assert self._launcher is not None
        # Read the events that the server sent before it was killed, until WorkerLost says that no more follow.
        with contextlib.suppress(WorkerLost):
            while True:
                self._handle_events()
        fd = self._launcher.fileno()
        assert fd is not None  # only a launcher with a fork server raises WorkerLost
        self.selector.unregister(fd)
        self._launcher.close()
        self._launcher = None
        self.losses += 1
        if self.losses > MAX_LOSSES:
            raise WorkerLost(f"the fork server was killed {self.losses} times in a row; giving up")
        self.work.mkdir(exist_ok=True)  # a server that ends normally removes the folder
        lost = [running for running in self.running.values() if not running.ended]
        if len(lost) == 1:
            lost[0].ended = True
            return
        self.suspects.extend(running.task for running in lost)
        for running in lost:
            self._remove(running)

    def _remove(self, running: RunningTask) -> None:
        """Remove a task that has ended or must run again, with its folder."""
        running.close()
        del self.running[running.id]
        shutil.rmtree(self.work / running.id, ignore_errors=True)


class PoolCache:
    """A context manager with one pool for every list of preloaded modules.

    Tasks with different lists use different fork servers, because importing a library can patch another library.
    """

    def __init__(self, jobs: int, *, spawn: bool = False) -> None:
        self.jobs, self.spawn = jobs, spawn
        self._stack = ExitStack()
        self._pools: dict[tuple[str, ...], Pool] = {}

    def __enter__(self) -> "PoolCache":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def pool(self, preload: Sequence[str]) -> AbstractContextManager[Pool]:
        """Return the pool for these modules. The pool stays open when its context is left, for the next validation."""
        key = tuple(preload)
        if key not in self._pools:
            self._pools[key] = self._stack.enter_context(Pool(list(preload), self.jobs, spawn=self.spawn))
        return nullcontext(self._pools[key])
