"""Submit the attempts of a validation to workers, answer them from the cache, and record cancelled ones."""

import functools
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pv.commands.validation.attempts import Attempt, Options, PartialEvidence, Tasks, with_run
from pv.contract.model import Falsifier, Run
from pv.engines.engine import Conditions, Depends, seed_of
from pv.engines.registry import engine_of
from pv.engines.suite.engine import bench_of
from pv.mutation.judge import limit_on_mutant
from pv.results.trial import STOPPED, Trial, TrialStatus
from pv.workers.scheduler import Job, Scheduler
from pv.workers.tasks import Body, source_of


class Submission:
    """Submits attempts, until the first failure with --fail-fast.

    Args:
        scheduler: The scheduler of the workers.
        tasks: Builds the tasks of attempts.
        options: The options of the validation.
        known: The evidence so far, by id of the contract.
    """

    def __init__(
        self, scheduler: Scheduler[Attempt], tasks: Tasks, options: Options, known: Mapping[str, PartialEvidence]
    ) -> None:
        self._scheduler, self._tasks, self._options, self._known = scheduler, tasks, options, known
        self._cached: deque[tuple[Attempt, Trial]] = deque()
        self._held: list[tuple[Falsifier, Job[Attempt]]] | None = None
        """Jobs held back until they can be sorted, each with its claim; None while jobs are submitted at once."""
        self._pending: dict[tuple[object, ...], _Pending] = {}
        """The attempts that run, by name, with their cache key and task."""

    def scratch(self) -> Path:
        """Return a new directory that lives as long as the workers."""
        return self._scheduler.scratch()

    def trials(self) -> Iterator[tuple[Attempt, Trial]]:
        """Yield every attempt with its trial, measured or cached. The caller may submit more attempts meanwhile.

        Cached trials are yielded while workers run, so that no worker waits for the caller.
        """
        while True:
            # Workers first: a measured trial frees a worker, a cached one can wait.
            if self._cached and not self._scheduler.poll(self._begin):
                yield self._cached.popleft()
            elif (ended := next(self._scheduler.trials(self._begin), None)) is not None:
                self._store(*ended)
                yield ended
            elif not self._cached:
                return

    @contextmanager
    def ordered(self) -> Iterator[None]:
        """Hold back the jobs that are submitted in this context and submit them sorted by likely failure.

        Order: claims that failed last time, then claims that execute a changed function; shorter claims first. Without
        --fail-fast the order does not matter, and jobs are submitted at once.
        """
        reuse = self._options.reuse
        if reuse is None or not self._options.fail_fast:
            yield
            return
        held: list[tuple[Falsifier, Job[Attempt]]] = []
        self._held = held
        yield
        self._held = None
        # `sorted` is stable, so claims with equal order keep the order of their contracts.
        order = {claim.id: reuse.priority(claim.id) for claim, _ in held}
        for _, job in sorted(held, key=lambda pair: order[pair[0].id]):
            self._scheduler.submit(job)

    def note(self, claim: Falsifier, *, failed: bool) -> None:
        """Record whether a claim failed, for the order of later validations."""
        if self._options.reuse is not None:
            self._options.reuse.record_outcome(claim.id, failed=failed)

    def falsify(self, attempt: Attempt, falsifier: Falsifier, conditions: Conditions | None = None) -> bool:
        """Submit a falsifier.

        Args:
            attempt: The attempt.
            falsifier: The falsifier of the attempt.
            conditions: The conditions; default: a search, or the replay of `attempt.first`.

        Returns:
            Whether `trials` will yield its trial. After --fail-fast has ended the validation only cached trials follow.
        """
        conditions = conditions or self._tasks.conditions(attempt)
        body, limit_s = (
            self._tasks.attack(attempt, falsifier, conditions),
            self._limit_s(attempt, falsifier, conditions),
        )
        return self._submit(attempt, falsifier, body, limit_s)

    def execute(self, attempt: Attempt, falsifier: Falsifier, run: Run, directory: Path) -> None:
        """Submit the run that a falsifier reads; its record is written to the directory."""
        self._submit(attempt, falsifier, self._tasks.execute(attempt, falsifier, run, directory), run.limit_s)

    @property
    def cancelled(self) -> bool:
        """Return whether a failure has ended the validation."""
        return self._scheduler.cancelled

    def fail_fast(self, failed: bool) -> None:
        """Cancel everything that has not started, if an attempt `failed` and --fail-fast is set."""
        if failed and self._options.fail_fast and not self._scheduler.cancelled:
            for attempt in self._scheduler.cancel():
                self.cancel(attempt)

    def leave_out(self, attempt: Attempt, claim: Falsifier, trial: Trial) -> None:
        """Record the same trial for the claims of a suite that have not started and need what could not be tried.

        Args:
            attempt: The attempt that showed that the subject cannot be tried.
            claim: Its claim.
            trial: Its trial; `untriable_but` names the features that can still be tried.
        """

        def is_needless(other: Attempt) -> bool:
            falsifier = other.falsifier
            if (
                falsifier is None
                or engine_of(falsifier) is not engine_of(claim)
                or other.contract is not attempt.contract
            ):
                return False
            same = bench_of(falsifier) == bench_of(claim)
            same = same and self._tasks.subject(other.contract, falsifier) == self._tasks.subject(
                attempt.contract, claim
            )
            return same and not (trial.untriable_but or frozenset()).intersection(falsifier.options["needs"])

        for other in self._scheduler.drop(is_needless):
            assert other.falsifier is not None
            like = replace(trial, falsifier=other.falsifier.id, device=other.device, seconds=0.0, cpu_s=0.0)
            self._known[other.contract.id].trials[other.falsifier.id, other.device] = like

    def _limit_s(self, attempt: Attempt, falsifier: Falsifier, conditions: Conditions) -> float:
        """Return the limit in seconds; for a generated mutant it follows from the time that the clean code took."""
        engine = engine_of(falsifier)
        limit_s = engine.limit_s(attempt.contract, falsifier, conditions)
        if falsifier.kills or attempt.mutant is None or not engine.timeout_kills:
            return limit_s
        return min(limit_s, limit_on_mutant(self._known[attempt.contract.id].trials[falsifier.id, "cpu"]))

    def _submit(self, attempt: Attempt, claimed: Falsifier, body: Body, limit_s: float) -> bool:
        if self._reused(attempt, body):
            return True
        if self._scheduler.cancelled:
            self.cancel(attempt)
            return False
        claim = attempt.falsifier.id if attempt.falsifier is not None else ""
        mutant = attempt.mutant.id if attempt.mutant is not None else None
        seed = seed_of(claim, self._options.seed)
        job = Job(key=attempt, body=body, limit_s=limit_s, claim=claim, label=str(attempt), mutant=mutant, seed=seed)
        if self._held is None:
            self._scheduler.submit(job)
        else:
            self._scheduler.begin()
            self._held.append((claimed, job))
        return True

    def _reused(self, attempt: Attempt, body: Body) -> bool:
        """Return whether the cache holds a result of the attempt; then `trials` yields it."""
        # A claim that reads a run on clean code is looked up by `look_up_read`, before the run is executed.
        claim = attempt.falsifier
        if claim is None or (attempt.mutant is None and engine_of(claim).run_of(attempt.contract, claim) is not None):
            return False
        return self._look_up(attempt, claim, [body])

    def look_up_read(self, attempt: Attempt, claim: Falsifier) -> bool:
        """Return whether the cache holds a result of a claim that reads a run; then the run need not be executed."""
        return self._look_up(attempt, claim, self._tasks.cached_tasks(attempt, claim))

    def _look_up(self, attempt: Attempt, claim: Falsifier, bodies: list[Body]) -> bool:
        reuse = self._options.reuse
        if reuse is None or attempt.device != "cpu":
            return False
        key = reuse.key(self._tasks.identity(attempt, claim, bodies))
        trial = reuse.lookup(key, functools.partial(_good, claim))
        if trial is None:
            self._pending[_name(attempt)] = _Pending(key, bodies[0])
            return False
        mutant = attempt.mutant.id if attempt.mutant is not None else None  # ids may have changed since
        self._cached.append((attempt, replace(trial, falsifier=claim.id, mutant=mutant)))
        return True

    def _begin(self, attempt: Attempt) -> None:
        if self._options.reuse is not None:
            self._options.reuse.begin(id(attempt))

    def _store(self, attempt: Attempt, trial: Trial) -> None:
        pending = self._pending.pop(_name(attempt), None)
        reuse, claim = self._options.reuse, attempt.falsifier
        since = reuse.end(id(attempt)) if reuse is not None else 0
        if pending is None or reuse is None or claim is None or not _good(claim, trial):
            return
        run = self._run_of(attempt, claim)
        trials = [trial] if run is None else [trial, run]
        whole = trial if run is None else with_run(trial, run)
        # Only the clean trial has a name: `pv why` explains claims, not mutants.
        name = claim.id if attempt.mutant is None and not attempt.small else ""
        source = source_of(pending.body, claim, trials)
        began_earlier = run is not None or source.depends_on is Depends.SHARED  # workers that began earlier
        reuse.store(pending.key, name, replace(whole, reads=None), source, 0 if began_earlier else since)

    def _run_of(self, attempt: Attempt, claim: Falsifier) -> Trial | None:
        """Return the trial of the run that an attempt has read; None on a mutant, which executes the run itself."""
        run = engine_of(claim).run_of(attempt.contract, claim)
        if run is None or attempt.mutant is not None:
            return None
        executing = self._tasks.execution(attempt, claim, run)
        return self._known[attempt.contract.id].runs[executing.execution].trial

    def cancel(self, attempt: Attempt) -> None:
        """Record that an attempt was not run because --fail-fast ended the validation."""
        partial = self._known[attempt.contract.id]
        for falsifier in self._affected(attempt, partial):
            lost = Trial(falsifier=falsifier.id, device=attempt.device, status=TrialStatus.CANCELLED, detail=STOPPED)
            if attempt.mutant is not None:
                partial.mutants[falsifier.id, attempt.mutant.id] = replace(lost, mutant=attempt.mutant.id)
            elif attempt.small:
                partial.mutants.setdefault((falsifier.id, ""), lost)
            else:
                partial.trials.setdefault((falsifier.id, attempt.device), lost)

    def _affected(self, attempt: Attempt, partial: PartialEvidence) -> list[Falsifier]:
        """Return the falsifier of an attempt, or those that wait for its run."""
        if attempt.falsifier is not None:
            return [attempt.falsifier]
        return list(partial.runs[attempt.execution].waiting)


@dataclass(frozen=True, slots=True)
class _Pending:
    """An attempt whose result may be cached: its cache key and its task."""

    key: str
    body: Body


def _name(attempt: Attempt) -> tuple[object, ...]:
    claim, mutant = attempt.falsifier, attempt.mutant
    ids = (attempt.contract.id, claim.id if claim else "", mutant.id if mutant else "")
    return (*ids, attempt.device, attempt.small, attempt.first is not None)


def _good(falsifier: Falsifier, trial: Trial) -> bool:
    """Return whether a trial is cached: one that supports its claim. Others are measured again."""
    # On a mutant a refutation supports the claim. A surviving generated mutant is a normal result, so it is cached too.
    if trial.status in (TrialStatus.REFUTED, TrialStatus.RAISED):
        return trial.mutant is not None
    if trial.status is TrialStatus.NOT_CLAIMED:
        return trial.mutant is None
    return trial.status is TrialStatus.HELD and (trial.mutant is None or not falsifier.kills)
