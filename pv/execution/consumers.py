"""Consumers of the events of an executor: the journal, progress, the stop at a failure, and recorded evidence.

Consumers do not depend on each other, nor on the plan.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property

from pv.engines.engine import Depends
from pv.engines.registry import engine_of
from pv.engines.trial import Trial, TrialStatus
from pv.execution.attempt import Attempt
from pv.execution.plan import Consumer, Event, Finished, Queued, Result, Started
from pv.mutation.judge import Judged
from pv.results import store, worktree
from pv.results.evidence import PROOFS, DeviceInfo
from pv.results.reuse.cache import ResultCache
from pv.source.project import Project
from pv.workers.device import CPU
from pv.workers.tasks import source_of


class Journal:
    """Looks up trials in the cache of results, and stores measured trials.

    Args:
        cache: The cache.
        supports: Returns whether a trial of an attempt may be stored and reused.
        fresh: Store trials, but do not look up any.
    """

    def __init__(self, cache: ResultCache, supports: Callable[[Attempt, Trial], bool], *, fresh: bool = False) -> None:
        self._cache, self._supports, self._fresh = cache, supports, fresh

    def lookup(self, attempt: Attempt) -> Trial | None:
        """Return the cached trial of an attempt; None if it must be measured."""
        if self._fresh or attempt.device != CPU:
            return None
        trial = self._cache.lookup(self._cache.key(attempt.task), lambda trial: self._supports(attempt, trial))
        # The ids of claim and mutant are not part of the key, so the cached ids may be old.
        mutant = attempt.mutant.id if attempt.mutant is not None else None
        return None if trial is None else replace(trial, falsifier=attempt.claim.id, mutant=mutant)

    def order(self, attempt: Attempt) -> tuple[int, float]:
        """Return the sort key of an attempt with --fail-fast: attempts that are likely to fail come first."""
        return self._cache.priority(attempt.claim.id)

    def __call__(self, event: Event) -> None:
        """Record when attempts start and how they end, and store their trials."""
        match event:
            case Started(attempt):
                self._cache.begin(attempt)
            case Finished(attempt, reused=False):
                self._store(event, self._cache.end(attempt))
            case Result(attempt, _, failed) if attempt.is_clean:
                self._cache.record_outcome(attempt.claim.id, failed=failed)

    def _store(self, finished: Finished, since: int) -> None:
        """Store the trial of a finished attempt on the CPU, if it may be reused.

        Args:
            finished: The attempt with its trial.
            since: The moment at which the attempt started, 0 if it is unknown; see `ResultCache.end`.
        """
        attempt, run = finished.attempt, finished.run
        if attempt.device != CPU or attempt.executes is not None or not self._supports(attempt, finished.trial):
            return
        trials = [finished.trial] if run is None else [finished.trial, run]
        source = source_of(attempt.body, attempt.claim, trials)
        # The run of the claim, or a run that claims of a suite share, may have been executed by an earlier worker.
        since = 0 if run is not None or source.depends_on is Depends.SHARED else since
        # Only clean trials are stored under a name, since `pv why` explains claims, not mutants.
        name = attempt.claim.id if attempt.is_clean and attempt.replayed is None else ""
        key = self._cache.key(attempt.task)
        self._cache.store(key, name, replace(finished.combined_trial, reads=None), source, since)


class Progress:
    """Counts the steps of a command, and calls a function when an attempt starts or a step is done.

    Args:
        on_progress: Called with this object.
        mutants: The number of mutants to judge; each of them is a step (default: every attempt is a step).

    Attributes:
        done: The number of steps done.
        total: The number of steps so far.
    """

    def __init__(self, on_progress: "OnProgress", mutants: int | None = None) -> None:
        self._on_progress, self._counts_attempts = on_progress, mutants is None
        self.done, self.total = 0, mutants or 0
        self._queued = set[Attempt]()
        self._running: dict[Attempt, str] = {}

    @property
    def running(self) -> tuple[str, ...]:
        """The attempts that run now, as text."""
        return tuple(self._running.values())

    def __call__(self, event: Event) -> None:
        match event:
            case Queued(attempt):
                self._queued.add(attempt)
                self.total += self._counts_attempts
                return
            case Started(attempt):
                self._running[attempt] = str(attempt)
            case Finished(attempt) if attempt in self._queued:
                self._queued.remove(attempt)
                self._running.pop(attempt, None)
                self.done += self._counts_attempts
            case Judged():
                self.done += 1
            case _:
                return
        self._on_progress(self)


OnProgress = Callable[[Progress], None]


def stop_at_failure(cancel: Callable[[], None]) -> Consumer:
    """Return a consumer that calls `cancel` at every result that failed."""

    def stop(event: Event) -> None:
        if isinstance(event, Result) and event.failed:
            cancel()

    return stop


class EvidenceWriter:
    """Writes proofs and results of devices other than the CPU to the evidence folder, as soon as they are measured.

    The results of a validation that is killed are therefore not lost.

    Args:
        project: The project whose evidence folder is written.
        devices: The measured devices by name.
    """

    def __init__(self, project: Project, devices: Mapping[str, DeviceInfo]) -> None:
        self._project, self._devices = project, devices

    @cached_property
    def _commit(self) -> str:
        """The commit of the project, read before the first file is written, because evidence files are changes too."""
        return worktree.commit_of(self._project.root)

    def __call__(self, event: Event) -> None:
        if not isinstance(event, Result) or not event.attempt.is_clean:
            return
        attempt, trial = event.attempt, event.trial
        claim, device = attempt.claim, attempt.device
        if device == CPU and not (engine_of(claim).proves and trial.status is TrialStatus.HELD and trial.reached):
            return
        fingerprint = store.fingerprint(self._project, attempt.contract, claim, attempt.subject)
        file_name, hardware = PROOFS if device == CPU else device, self._devices[device]
        trials, fingerprints = {claim.id: trial}, {claim.id: fingerprint}
        store.write(self._project, attempt.contract, file_name, hardware, trials, fingerprints, commit=self._commit)
