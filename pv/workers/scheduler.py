"""Runs jobs in a pool of workers and hands every trial to its caller, who may submit more jobs or cancel the rest."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from pv.engines.trial import Trial
from pv.workers import tasks
from pv.workers.pool import Pool
from pv.workers.running_task import Task
from pv.workers.tasks import Body
from pv.workers.trial_from_reply import trial

K = TypeVar("K")
"""What the caller identifies a job by: any object, which comes back with the trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The number of steps done, the number of steps so far, and the labels of the jobs that run now."""

    done: int
    total: int
    running: tuple[str, ...]


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Generic[K]):
    """One task for a worker, with the claim, the mutant and the seed of its trial.

    key: returned with the trial, for the caller. label: the text in progress reports. directory: removed when the job
    has ended.
    """

    key: K
    body: Body
    limit_s: float
    claim: str
    label: str
    mutant: str | None = None
    seed: int = 0
    directory: Path | None = None


class Scheduler(Generic[K]):
    """Submits jobs to a pool and reports progress, in steps.

    A step is one job, unless the caller has called `count`: then the caller reports steps by `advance`.
    """

    def __init__(self, pool: Pool, on_progress: OnProgress | None) -> None:
        self._pool, self._on_progress = pool, on_progress
        self._running: dict[str, None] = {}
        self._done = self._total = 0
        self._counts_jobs = True
        self.cancelled = False

    def scratch(self) -> Path:
        """Return a new directory that lives as long as the pool."""
        return self._pool.scratch()

    def begin(self) -> None:
        """Start loading the workers' libraries, before the first job is submitted."""
        self._pool.begin()

    def submit(self, job: Job[K]) -> None:
        """Run a job as soon as a worker is free. Raise RuntimeError after `cancel`."""
        if self.cancelled:
            raise RuntimeError("the scheduler was cancelled")
        self._total += self._counts_jobs
        memory_mib = tasks.memory_mib(job.body.device)
        self._pool.submit(Task(key=job, body=job.body, limit_s=job.limit_s, memory_mib=memory_mib))

    def trials(self, on_start: Callable[[K], None] | None = None) -> Iterator[tuple[K, Trial]]:
        """Yield the key and the trial of every job as it ends, until no job is left.

        Args:
            on_start: Called with the key of each job when it starts.
        """
        for task, reply in self._pool.replies(partial(self._report_start, on_start)):
            job: Job[K] = task.key
            self._running.pop(job.label, None)
            if job.directory is not None:
                shutil.rmtree(job.directory, ignore_errors=True)
            if self._counts_jobs:
                self.advance()
            device = job.body.device
            yield job.key, trial(reply, falsifier=job.claim, device=device, mutant=job.mutant, seed=job.seed)

    def poll(self, on_start: Callable[[K], None] | None = None) -> bool:
        """Start the jobs for which there is room. Return whether one has ended, which `trials` yields next."""
        return self._pool.poll(partial(self._report_start, on_start))

    def cancel(self) -> list[K]:
        """Drop the jobs that have not started, refuse new ones, and return the keys of the dropped ones."""
        self.cancelled = True
        return [task.key.key for task in self._pool.drop_pending()]

    def drop(self, is_needless: Callable[[K], bool]) -> list[K]:
        """Drop the jobs that have not started and are not needed, and return their keys."""
        dropped = []
        # The queue of the pool is emptied and filled again, which keeps the order of the remaining jobs.
        for task in self._pool.drop_pending():
            if is_needless(task.key.key):
                dropped.append(task.key.key)
            else:
                self._pool.submit(task)
        self._total -= len(dropped) if self._counts_jobs else 0
        return dropped

    def count(self, total: int) -> None:
        """Count from 0 to `total` steps from now on; the caller reports each step by `advance`."""
        self._counts_jobs, self._done, self._total = False, 0, total

    def advance(self) -> None:
        """Report one more step as done."""
        self._done += 1
        self._report()

    def _report_start(self, on_start: Callable[[K], None] | None, task: Task) -> None:
        if on_start is not None:
            on_start(task.key.key)
        self._running[task.key.label] = None
        self._report()

    def _report(self) -> None:
        if self._on_progress is not None:
            self._on_progress(Progress(done=self._done, total=self._total, running=tuple(self._running)))
