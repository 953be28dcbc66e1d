"""Submits the attempts of a validation to its workers, and records those that are cancelled."""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pv.commands.validation.attempt import Attempt, Options, PartialEvidence
from pv.commands.validation.tasks import Tasks
from pv.contract.claims import Falsifier, Run
from pv.engines.kind import Conditions, seed_of
from pv.engines.kinds import kind_of
from pv.mutation.judge import limit_on_mutant
from pv.results.trial import Trial, TrialStatus
from pv.source.resolve import Unbound
from pv.workers.scheduler import Job, Scheduler
from pv.workers.tasks import Body

STOPPED = "not run: --fail-fast stopped at the first failure"


class Submission:
    """Submits attempts until the first failure under --fail-fast. `known` is what is known of each contract, by id."""

    def __init__(
        self, scheduler: Scheduler[Attempt], tasks: Tasks, options: Options, known: Mapping[str, PartialEvidence]
    ) -> None:
        self._scheduler, self._tasks, self._options, self._known = scheduler, tasks, options, known
        self._recalled: deque[tuple[Attempt, Trial]] = deque()
        self._keys: dict[int, str] = {}
        """For each attempt that runs, under which key its result is kept: of its task as it was when it began."""

    def scratch(self) -> Path:
        """Return a new directory that lives as long as the workers."""
        return self._scheduler.scratch()

    def trials(self) -> Iterator[tuple[Attempt, Trial]]:
        """Yield every attempt with its trial, recalled or run; attempts may be submitted meanwhile."""
        yield from self._all_recalled()
        for attempt, found in self._scheduler.trials():
            self._keep(attempt, found)
            yield attempt, found
            yield from self._all_recalled()

    def falsify(self, attempt: Attempt, falsifier: Falsifier, how: Conditions | None = None) -> None:
        """Try a falsifier; by default as a search, or as the replay of what a first search found."""
        how = how or self._tasks.how(attempt)
        self._submit(attempt, self._tasks.attack(attempt, falsifier, how), self._limit_s(attempt, falsifier, how))

    def execute(self, attempt: Attempt, falsifier: Falsifier, run: Run, directory: Path) -> None:
        """Execute a run that a falsifier reads, and keep its record in the directory."""
        self._submit(attempt, self._tasks.execute(attempt, falsifier, run, directory), run.limit_s)

    def fail_fast(self, failed: bool) -> None:
        """Cancel everything that has not started if an attempt `failed` and the options say so."""
        if failed and self._options.fail_fast and not self._scheduler.cancelled:
            for attempt in self._scheduler.cancel():
                self._cancel(attempt)

    def _limit_s(self, attempt: Attempt, falsifier: Falsifier, how: Conditions) -> float:
        """Return the limit in seconds; on an automatic mutant it follows from the time that the clean code took."""
        kind = kind_of(falsifier)
        limit_s = kind.limit_s(attempt.contract, falsifier, how)
        if falsifier.kills or attempt.mutant is None or not kind.timeout_kills:
            return limit_s
        return min(limit_s, limit_on_mutant(self._known[attempt.contract.id].trials[falsifier.id, "cpu"]))

    def _submit(self, attempt: Attempt, body: Body, limit_s: float) -> None:
        if self._scheduler.cancelled:
            self._cancel(attempt)
            return
        if self._reused(attempt, body):
            return
        claim = attempt.falsifier.id if attempt.falsifier is not None else ""
        mutant = attempt.mutant.id if attempt.mutant is not None else None
        seed = seed_of(claim, self._options.seed)
        job = Job(key=attempt, body=body, limit_s=limit_s, claim=claim, label=str(attempt), mutant=mutant, seed=seed)
        self._scheduler.submit(job)

    def _reused(self, attempt: Attempt, body: Body) -> bool:
        """Return whether an earlier result of the attempt was found; then `trials` yields it."""
        reuse, claim = self._options.reuse, attempt.falsifier
        if reuse is None or claim is None or not _reusable(attempt, claim):
            return False
        limit_s = kind_of(claim).limit_s(attempt.contract, claim, self._tasks.how(attempt))
        key = reuse.key([body.as_json(), limit_s, self._options.spawn])
        found = reuse.recalled(key)
        if found is None:
            self._keys[id(attempt)] = key
            return False
        mutant = attempt.mutant.id if attempt.mutant is not None else None  # ids may have changed since
        self._recalled.append((attempt, replace(found, falsifier=claim.id, mutant=mutant)))
        return True

    def _keep(self, attempt: Attempt, found: Trial) -> None:
        key = self._keys.pop(id(attempt), None)
        reuse, claim = self._options.reuse, attempt.falsifier
        if key is None or reuse is None or claim is None or not _good(claim, found):
            return
        with suppress(Unbound, OSError):  # the code is being edited: nothing is kept
            reuse.keep(key, found, self._tasks.files(attempt, claim))

    def _all_recalled(self) -> Iterator[tuple[Attempt, Trial]]:
        while self._recalled:
            yield self._recalled.popleft()

    def _cancel(self, attempt: Attempt) -> None:
        known = self._known[attempt.contract.id]
        for falsifier in self._affected(attempt, known):
            lost = Trial(falsifier=falsifier.id, device=attempt.device, status=TrialStatus.CANCELLED, detail=STOPPED)
            if attempt.mutant is not None:
                known.mutants[falsifier.id, attempt.mutant.id] = replace(lost, mutant=attempt.mutant.id)
            elif not attempt.small:
                known.trials.setdefault((falsifier.id, attempt.device), lost)

    def _affected(self, attempt: Attempt, known: PartialEvidence) -> list[Falsifier]:
        """Return the falsifier of an attempt, or those that wait for its run."""
        if attempt.falsifier is not None:
            return [attempt.falsifier]
        return list(known.runs[attempt.execution].waiting)


def _reusable(attempt: Attempt, claim: Falsifier) -> bool:
    """Return whether another validation can use its result: reference runs leave records, and are always executed."""
    return attempt.device == "cpu" and kind_of(claim).run_of(attempt.contract, claim) is None


def _good(falsifier: Falsifier, found: Trial) -> bool:
    """Return whether a result speaks for its claim; others are measured again. A generated mutant may survive."""
    if found.status in (TrialStatus.REFUTED, TrialStatus.RAISED):
        return found.mutant is not None
    return found.status is TrialStatus.HELD and (found.mutant is None or not falsifier.kills)
