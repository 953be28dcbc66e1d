"""The executor: one loop that runs the attempts of a plan in workers and sends its events to consumers.

A plan yields the attempts to run, and further steps for every result. A consumer reads the events: it counts progress,
stores results, stops at a failure, or writes evidence (`pv.execution.consumers`). Plans and consumers do not depend on
each other.
"""

import shutil
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from pv.engines.trial import Trial, TrialStatus
from pv.execution.attempt import Attempt
from pv.execution.consumers import Journal
from pv.execution.plan import (
    Answer,
    AttemptPlan,
    Cancelled,
    Consumer,
    Event,
    Finished,
    Order,
    Queued,
    Started,
    Step,
)
from pv.workers import tasks
from pv.workers.pool import Pool
from pv.workers.running_task import Reply, Task
from pv.workers.trial_from_reply import trial as trial_of


class Executor:
    """Runs the attempts of plans, one plan after the other, in the workers of a pool.

    1. If the trial of an attempt is cached, the attempt is not run, and the cached trial is used, also after `cancel`.
    2. If a claim reads a run, the run is executed first, once for all claims that read it.
    3. When an attempt ends, an event is sent to the consumers and then to the plan, which may return further steps.

    Args:
        pool: The workers.
        journal: Looks up cached trials, and stores new ones; None to run every attempt.

    Attributes:
        consumers: The receivers of events, in this order. The journal is the first, so that an interrupt loses no
            result.
    """

    def __init__(self, pool: Pool, journal: Journal | None = None) -> None:
        self._pool, self._journal = pool, journal
        self.consumers: list[Consumer] = [] if journal is None else [journal]
        self._plan: AttemptPlan
        self._answered: deque[Finished] = deque()
        """The attempts that have a trial without being run."""
        self._readers: dict[Attempt, list[Attempt]] = {}
        """The attempts that read the record of a run, by the attempt that executes the run and has not ended."""
        self._ended_runs: dict[Attempt, Finished] = {}
        self._record_folders: dict[Attempt, Path] = {}
        """The folders to which running attempts write the record of a run."""
        self._cancelled = False

    def run(self, plan: AttemptPlan, order: Order | None = None) -> None:
        """Run a plan until no step is left.

        Args:
            plan: The plan.
            order: Returns the sort key of an attempt of the first steps. Without it, and for equal keys, attempts
                start in the order of the plan.

        Raises:
            WorkerLost: The fork server cannot be started.
        """
        self._plan = plan
        self._perform(plan.start())
        if order is not None:
            self._sort(order)
        while (finished := self._next()) is not None:
            self._handle(finished)

    def trials(self, attempts: Sequence[Attempt]) -> list[Trial]:
        """Run attempts from which no further steps follow, and return their trials."""
        plan = _Batch(attempts)
        self.run(plan)
        return [plan.trials[attempt] for attempt in attempts]

    def cancel(self) -> None:
        """Cancel the attempts that have not started, and start no more attempts.

        From now on, a new attempt gets a trial only from the cache, or from its run if that run has failed.
        """
        self._cancelled = True
        for task in self._pool.drop_pending():
            self._cancel(task.key, queued=True)

    def _perform(self, steps: Iterable[Step]) -> None:
        """Perform steps of the plan: submit attempts, answer queued attempts, or emit events."""
        for step in steps:
            match step:
                case Attempt():
                    self._submit(step)
                case Answer():
                    self._answer(step)
                case _:
                    self._emit(step)

    def _emit(self, event: Event) -> None:
        for consumer in self.consumers:
            consumer(event)

    def _submit(self, attempt: Attempt) -> None:
        """Answer an attempt from the cache, or queue it; if the claim reads a run, queue the run first."""
        run_attempt = attempt.run
        if self._journal is not None and (trial := self._journal.lookup(attempt)) is not None:
            self._answered.append(Finished(attempt, trial, reused=True))
        elif run_attempt is not None and run_attempt in self._ended_runs:
            self._submit_reader(attempt, self._ended_runs[run_attempt])
        elif self._cancelled:
            self._cancel(attempt)
        elif run_attempt is None:
            self._queue(attempt)
        elif run_attempt in self._readers:
            self._readers[run_attempt].append(attempt)
        else:
            self._readers[run_attempt] = [attempt]
            self._queue(run_attempt)

    def _submit_reader(self, attempt: Attempt, ended_run: Finished) -> None:
        """Queue an attempt that reads the record of a run. If the run failed, use its trial as the attempt's trial."""
        if ended_run.trial.status is not TrialStatus.HELD:
            trial = replace(ended_run.trial, falsifier=attempt.claim.id, seed=attempt.seed)
            self._answered.append(Finished(attempt, trial, reused=True))
        elif self._cancelled:
            self._cancel(attempt)
        else:
            self._queue(attempt, ended_run.directory)

    def _queue(self, attempt: Attempt, record_folder: Path | None = None) -> None:
        """Submit an attempt to the pool.

        Args:
            attempt: The attempt.
            record_folder: The folder with the record of the run that the claim reads; None if the worker of this
                attempt executes a run itself, and writes the record to a new folder.
        """
        body = attempt.body
        # Only attempts that execute a run or read its record have this key, which is empty until now.
        if body.payload is not None and "directory" in body.payload:
            if record_folder is None:
                record_folder = self._record_folders[attempt] = self._pool.new_folder()
            body = replace(body, payload={**body.payload, "directory": str(record_folder)})
        memory_mib = tasks.memory_mib(attempt.device)
        self._pool.submit(Task(key=attempt, body=body, limit_s=attempt.limit_s, memory_mib=memory_mib))
        self._emit(Queued(attempt))

    def _sort(self, order: Order) -> None:
        """Sort the queued attempts."""

        def key(task: Task) -> tuple[int, float]:
            # The key of a run is the smallest key of the claims that read it.
            return min(map(order, self._readers.get(task.key, [task.key])))

        for task in sorted(self._pool.drop_pending(), key=key):
            self._pool.submit(task)

    def _answer(self, answer: Answer) -> None:
        """Finish the queued attempts for which an answer has a trial."""
        # Take all tasks from the pool and submit the remaining ones again, so their order stays the same.
        for task in self._pool.drop_pending():
            if (trial := answer.trial_of(task.key)) is not None:
                self._answered.append(Finished(task.key, trial, reused=True))
            else:
                self._pool.submit(task)

    def _next(self) -> Finished | None:
        """Return the next attempt that has a trial; None if no attempt is left."""
        # Handle the replies of workers first, so that free workers get new tasks. Cached trials can wait: with cached
        # trials left, only ask whether a task has ended (`poll`); otherwise, wait until a task ends (`replies`).
        if not self._answered or self._pool.poll(self._begin):
            reply = next(iter(self._pool.replies(self._begin)), None)
            if reply is not None:
                return self._read_reply(*reply)
        return self._answered.popleft() if self._answered else None

    def _begin(self, task: Task) -> None:
        """Emit that a task has started."""
        # Immediately, not in the loop of `run`, because the log of opened files must know when a task started.
        self._emit(Started(task.key))

    def _read_reply(self, task: Task, reply: Reply) -> Finished:
        """Return the event for the end of a task. Remove its record of a run, unless other attempts read the record."""
        attempt: Attempt = task.key
        mutant = attempt.mutant.id if attempt.mutant is not None else None
        trial = trial_of(reply, falsifier=attempt.claim.id, device=attempt.device, mutant=mutant, seed=attempt.seed)
        directory = self._record_folders.pop(attempt, None)
        if directory is not None and attempt.executes is None:
            shutil.rmtree(directory, ignore_errors=True)
        run_trial = self._ended_runs[attempt.run].trial if attempt.run is not None else None
        return Finished(attempt, trial, run=run_trial, directory=directory)

    def _handle(self, finished: Finished) -> None:
        """Send the event to the consumers, submit the claims that read this run, and perform the plan's next steps."""
        self._emit(finished)
        if (readers := self._readers.pop(finished.attempt, None)) is not None:
            self._ended_runs[finished.attempt] = finished
            for attempt in readers:
                self._submit_reader(attempt, finished)
        self._perform(self._plan.follow(finished))

    def _cancel(self, attempt: Attempt, *, queued: bool = False) -> None:
        """Emit that an attempt is cancelled and, if it executes a run, also the attempts that would read the run."""
        for cancelled in [attempt, *self._readers.pop(attempt, ())]:
            event = Cancelled(cancelled, queued)
            self._emit(event)
            self._perform(self._plan.follow(event))


class _Batch:
    """A plan of attempts from which no further steps follow."""

    def __init__(self, attempts: Sequence[Attempt]) -> None:
        self._attempts = attempts
        self.trials: dict[Attempt, Trial] = {}

    def start(self) -> Iterable[Step]:
        return self._attempts

    def follow(self, event: Finished | Cancelled) -> Iterable[Step]:
        if isinstance(event, Finished):
            self.trials[event.attempt] = event.combined_trial
        return ()
