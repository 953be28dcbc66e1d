"""Submits the attempts of a validation to its workers, and records those that are cancelled."""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pv.commands.validation.attempt import Attempt, Options, PartialEvidence, with_run
from pv.commands.validation.tasks import Tasks
from pv.contract.claims import Falsifier, Run
from pv.engines.engine import Conditions, Depends, seed_of
from pv.engines.registry import engine_of
from pv.engines.suite.engine import bench_of
from pv.mutation.judge import limit_on_mutant
from pv.results.trial import STOPPED, Trial, TrialStatus
from pv.workers.scheduler import Job, Scheduler
from pv.workers.tasks import Body, source_of


class Submission:
    """Submits attempts until the first failure under --fail-fast. `known` is what is known of each contract, by id."""

    def __init__(
        self, scheduler: Scheduler[Attempt], tasks: Tasks, options: Options, known: Mapping[str, PartialEvidence]
    ) -> None:
        self._scheduler, self._tasks, self._options, self._known = scheduler, tasks, options, known
        self._cached: deque[tuple[Attempt, Trial]] = deque()
        self._held: list[tuple[Falsifier, Job[Attempt]]] | None = None
        """What waits for its place in an order, with the claim that it is for."""
        self._pending: dict[tuple[object, ...], _Pending] = {}
        """The attempts that run, by name, with their tasks as they were when they began."""

    def scratch(self) -> Path:
        """Return a new directory that lives as long as the workers."""
        return self._scheduler.scratch()

    def trials(self) -> Iterator[tuple[Attempt, Trial]]:
        """Yield every attempt with its trial, run or cached; attempts may be submitted meanwhile.

        Cached trials are yielded while workers run, so that no worker waits for them.
        """
        while True:
            if self._cached and not self._scheduler.poll(self._begin):
                yield self._cached.popleft()
            elif (ended := next(self._scheduler.trials(self._begin), None)) is not None:
                self._store(*ended)
                yield ended
            elif not self._cached:
                return

    @contextmanager
    def ordered(self) -> Iterator[None]:
        """Order what is submitted meanwhile, if the first failure ends the validation: what may fail soon comes first.

        Claims that failed last time come first, then those that execute a changed function; of these the shortest.
        """
        reuse = self._options.reuse
        if reuse is None or not self._options.fail_fast:
            yield
            return
        held: list[tuple[Falsifier, Job[Attempt]]] = []
        self._held = held
        yield
        self._held = None
        order = {claim.id: reuse.priority(claim.id) for claim, _ in held}
        for _, job in sorted(held, key=lambda each: order[each[0].id]):
            self._scheduler.submit(job)

    def note(self, claim: Falsifier, *, failed: bool) -> None:
        """Note for the order of later validations whether a claim failed."""
        if self._options.reuse is not None:
            self._options.reuse.record_outcome(claim.id, failed=failed)

    def falsify(self, attempt: Attempt, falsifier: Falsifier, conditions: Conditions | None = None) -> bool:
        """Try a falsifier; by default as a search, or as the replay of what a first search found.

        Return whether `trials` will yield its trial: after a failure has ended the validation, only a cached one.
        """
        conditions = conditions or self._tasks.conditions(attempt)
        body, limit_s = (
            self._tasks.attack(attempt, falsifier, conditions),
            self._limit_s(attempt, falsifier, conditions),
        )
        return self._submit(attempt, falsifier, body, limit_s)

    def execute(self, attempt: Attempt, falsifier: Falsifier, run: Run, directory: Path) -> None:
        """Execute a run that a falsifier reads, and keep its record in the directory."""
        self._submit(attempt, falsifier, self._tasks.execute(attempt, falsifier, run, directory), run.limit_s)

    @property
    def cancelled(self) -> bool:
        """Return whether a failure has ended the validation."""
        return self._scheduler.cancelled

    def fail_fast(self, failed: bool) -> None:
        """Cancel everything that has not started if an attempt `failed` and the options say so."""
        if failed and self._options.fail_fast and not self._scheduler.cancelled:
            for attempt in self._scheduler.cancel():
                self.cancel(attempt)

    def leave_out(self, attempt: Attempt, claim: Falsifier, found: Trial) -> None:
        """Record a trial like `found` for the claims of the same suite that have not begun: none can be tried."""

        def is_needless(other: Attempt) -> bool:
            each = other.falsifier
            if each is None or engine_of(each) is not engine_of(claim) or other.contract is not attempt.contract:
                return False
            same = bench_of(each) == bench_of(claim)
            same = same and self._tasks.subject(other.contract, each) == self._tasks.subject(attempt.contract, claim)
            return same and not (found.untriable_but or frozenset()).intersection(each.options["needs"])

        for other in self._scheduler.drop(is_needless):
            assert other.falsifier is not None
            like = replace(found, falsifier=other.falsifier.id, device=other.device, seconds=0.0, cpu_s=0.0)
            self._known[other.contract.id].trials[other.falsifier.id, other.device] = like

    def _limit_s(self, attempt: Attempt, falsifier: Falsifier, conditions: Conditions) -> float:
        """Return the limit in seconds; on an automatic mutant it follows from the time that the clean code took."""
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
        """Return whether an earlier result of the attempt was found; then `trials` yields it."""
        claim = attempt.falsifier
        if claim is None or (attempt.mutant is None and engine_of(claim).run_of(attempt.contract, claim) is not None):
            return False
        return self._look_up(attempt, claim, [body])

    def look_up_read(self, attempt: Attempt, claim: Falsifier) -> bool:
        """Return whether an earlier result of a claim that reads a run was found; then the run need not be executed."""
        return self._look_up(attempt, claim, self._tasks.cached_tasks(attempt, claim))

    def _look_up(self, attempt: Attempt, claim: Falsifier, bodies: list[Body]) -> bool:
        reuse = self._options.reuse
        if reuse is None or attempt.device != "cpu":
            return False
        key = reuse.key(self._tasks.identity(attempt, claim, bodies))
        found = reuse.lookup(key, partial(_good, claim))
        if found is None:
            self._pending[_name(attempt)] = _Pending(key, bodies[0])
            return False
        mutant = attempt.mutant.id if attempt.mutant is not None else None  # ids may have changed since
        self._cached.append((attempt, replace(found, falsifier=claim.id, mutant=mutant)))
        return True

    def _begin(self, attempt: Attempt) -> None:
        if self._options.reuse is not None:
            self._options.reuse.begin(id(attempt))

    def _store(self, attempt: Attempt, found: Trial) -> None:
        pending = self._pending.pop(_name(attempt), None)
        reuse, claim = self._options.reuse, attempt.falsifier
        since = reuse.end(id(attempt)) if reuse is not None else 0
        if pending is None or reuse is None or claim is None or not _good(claim, found):
            return
        run = self._run_of(attempt, claim)
        trials = [found] if run is None else [found, run]
        whole = found if run is None else with_run(found, run)
        name = claim.id if attempt.mutant is None and not attempt.small else ""
        source = source_of(pending.body, claim, trials)
        others = run is not None or source.depends_on is Depends.SHARED  # workers that began earlier
        reuse.store(pending.key, name, replace(whole, reads=None), source, 0 if others else since)

    def _run_of(self, attempt: Attempt, claim: Falsifier) -> Trial | None:
        """Return the trial of the run that an attempt has read; on a mutant it executes its own."""
        run = engine_of(claim).run_of(attempt.contract, claim)
        if run is None or attempt.mutant is not None:
            return None
        executing = self._tasks.execution(attempt, claim, run)
        return self._known[attempt.contract.id].runs[executing.execution].trial

    def cancel(self, attempt: Attempt) -> None:
        """Record that an attempt was not run because a failure ended the validation."""
        known = self._known[attempt.contract.id]
        for falsifier in self._affected(attempt, known):
            lost = Trial(falsifier=falsifier.id, device=attempt.device, status=TrialStatus.CANCELLED, detail=STOPPED)
            if attempt.mutant is not None:
                known.mutants[falsifier.id, attempt.mutant.id] = replace(lost, mutant=attempt.mutant.id)
            elif attempt.small:
                known.mutants.setdefault((falsifier.id, ""), lost)
            else:
                known.trials.setdefault((falsifier.id, attempt.device), lost)

    def _affected(self, attempt: Attempt, known: PartialEvidence) -> list[Falsifier]:
        """Return the falsifier of an attempt, or those that wait for its run."""
        if attempt.falsifier is not None:
            return [attempt.falsifier]
        return list(known.runs[attempt.execution].waiting)


@dataclass(frozen=True, slots=True)
class _Pending:
    """An attempt whose result may be kept: its key and its task."""

    key: str
    body: Body


def _name(attempt: Attempt) -> tuple[object, ...]:
    claim, mutant = attempt.falsifier, attempt.mutant
    ids = (attempt.contract.id, claim.id if claim else "", mutant.id if mutant else "")
    return (*ids, attempt.device, attempt.small, attempt.first is not None)


def _good(falsifier: Falsifier, found: Trial) -> bool:
    """Return whether a result speaks for its claim; others are measured again. A generated mutant may survive."""
    if found.status in (TrialStatus.REFUTED, TrialStatus.RAISED):
        return found.mutant is not None
    if found.status is TrialStatus.NOT_CLAIMED:
        return found.mutant is None
    return found.status is TrialStatus.HELD and (found.mutant is None or not falsifier.kills)
