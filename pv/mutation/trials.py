"""The trials of automatic mutants: each is tried on the falsifiers that run it, until one kills it."""

import random
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

from pv.contract.model import NO_SCOPE, Contract, Falsifier
from pv.engines.code import Code
from pv.engines.engine import Conditions, Depends, seed_of
from pv.engines.registry import engine_of
from pv.mutation import judge, scope
from pv.mutation.generate import Automatic, Module, compiles_to
from pv.mutation.judge import DETECTED, Judged, MutantStatus
from pv.mutation.result import MutationResult, Plan
from pv.results.reuse.cache import ResultCache
from pv.results.trial import Trial, TrialStatus
from pv.source import resolve
from pv.source.patch import patch
from pv.source.project import Project
from pv.workers import tasks
from pv.workers.pool import Pool
from pv.workers.scheduler import Job, Scheduler

HARDER = 10
"""Factor on the number of examples with which a falsifier is tried on a declared equivalent."""


@dataclass(slots=True)
class _Pending:
    """A mutant that is being tried: the falsifiers that are left, and the ids of those that have tried it."""

    mutant: Automatic
    left: list[Falsifier]
    equivalent: bool
    tried: list[str] = field(default_factory=list)


class MutantTrials:
    """The trials of one contract's automatic mutants by `falsifiers` of it and of its judges."""

    def __init__(self, project: Project, contract: Contract, falsifiers: Sequence[Falsifier], plan: Plan) -> None:
        self.project, self.contract, self.plan = project, contract, plan
        self.falsifiers = [f for f in falsifiers if engine_of(f).bound and "cpu" in f.devices]
        self.restricted = plan.widely or bool(plan.modules) or len(falsifiers) < len(scope.judging(contract))
        self.clean: dict[str, Trial] = {}
        self.judged: list[Judged] = []
        self._owners = scope.owners(contract)
        self._codes = {f.id: Code(project, self._owners[f.id].subject_of(f)) for f in self.falsifiers}
        self._kills: Counter[tuple[str, str]] = Counter()
        self._waiting: deque[_Pending] = deque()
        self._cache: ResultCache
        self._scheduler: Scheduler[_Pending | Falsifier]
        """The key of a job is the mutant, or the falsifier on the clean code."""
        self._scope = NO_SCOPE if plan.widely else contract.mutation_scope
        self._idle: tuple[str, ...] = ()
        """The mutation scope that no falsifier runs."""

    def run(self) -> MutationResult:
        """Return the status of every mutant. Nothing is tried where no requested module is in the mutation scope."""
        asked = self.plan.modules
        if not asked or scope.matching(scoped := self._modules(self.falsifiers), asked):
            return self._tried()
        return MutationResult(
            contract=self.contract,
            falsifiers=tuple(f.id for f in self.falsifiers),
            total=0,
            judged=(),
            scope=self._scope.names,
            restricted=True,
            elsewhere=scope.elsewhere(self.contract, scoped, asked, widely=self.plan.widely),
        )

    def _tried(self) -> MutationResult:
        """Try the clean code first, for its coverage and its time, then the mutants."""
        targets = scope.subjects(self.contract, self.falsifiers)
        preload = tasks.preload(self.project, [self.contract, *self.contract.judges], targets)
        with (
            closing(ResultCache(self.project)) as self._cache,
            Pool(preload, self.plan.jobs, spawn=self.plan.spawn) as pool,
        ):
            self._scheduler = Scheduler(pool, self.plan.on_progress)
            self._try_clean()
            found = self._mutants()
            chosen = self._chosen(found)
            equivalent = self._equivalent()
            self._queue(chosen, frozenset(equivalent))
            self._try_mutants()
        order = {mutant.mutant.id: place for place, mutant in enumerate(chosen)}
        return MutationResult(
            contract=self.contract,
            falsifiers=tuple(f.id for f in self._fit()),
            total=len(found),
            judged=tuple(sorted(self.judged, key=lambda j: order[j.mutant.mutant.id])),
            unfit=tuple(t for t in self.clean.values() if t.status not in (TrialStatus.HELD, TrialStatus.SKIPPED)),
            unused=self._unused(found, equivalent),
            idle=() if self.restricted else self._idle,
            scope=self._scope.names,
            files=frozenset().union(*(t.files for t in self.clean.values())),
            restricted=self.restricted,
        )

    def _try_clean(self) -> None:
        for falsifier in self.falsifiers:
            run = engine_of(falsifier).run_of(self._owners[falsifier.id], falsifier)
            self._submit(falsifier, None, max(falsifier.limit_s, run.limit_s if run is not None else 0.0))
        for _, found in self._ended_trials():
            self.clean[found.falsifier] = found

    def _fit(self) -> list[Falsifier]:
        return [f for f in self.falsifiers if self.clean[f.id].status is TrialStatus.HELD]

    def _mutants(self) -> list[Automatic]:
        fit = self._fit()
        reached = frozenset().union(*(self.clean[f.id].reached for f in fit))
        if self._scope.modules:
            self._idle = tuple(each.text for each in self._scope.modules if not any(map(each.holds, reached)))
            reached = frozenset(filter(self._scope.holds, reached))
        return scope.mutants(scope.matching(self._modules(fit), self.plan.modules), reached)

    def _modules(self, judges: Sequence[Falsifier]) -> list[Module]:
        """Return the modules in the mutation scope, whatever modules were requested."""
        if self.plan.widely:
            return scope.imported_modules(self.project, scope.under_contract(self.contract, judges))
        if self._scope.modules:
            return scope.named(self.project, self.contract)
        return scope.default(self.project, self.contract, judges)

    def _chosen(self, found: Sequence[Automatic]) -> list[Automatic]:
        if self.plan.sample is None or self.plan.sample >= len(found):
            return list(found)
        drawn = set(random.Random(self.plan.seed).sample(range(len(found)), self.plan.sample))
        return [mutant for place, mutant in enumerate(found) if place in drawn]

    def _equivalent(self) -> dict[str, str]:
        """Return what each declared equivalent compiles to, with its text in the contract."""
        found = {}
        for declared in self.contract.equivalents:
            change = declared.change
            path = resolve.target_file(self.project, change.function)
            changed = patch(resolve.source(path), change.function.attribute, change.find, change.replace)
            found[compiles_to(resolve.module_name(self.project, path), changed)] = (
                f"{declared.location}: {change.find} -> {change.replace}"
            )
        return found

    def _unused(self, found: Sequence[Automatic], equivalent: Mapping[str, str]) -> tuple[str, ...]:
        """Return the declared equivalents that are not automatic mutants, unless only some mutants were made."""
        results = {mutant.result for mutant in found}
        return () if self.restricted else tuple(why for result, why in equivalent.items() if result not in results)

    def _queue(self, chosen: Sequence[Automatic], equivalent: frozenset[str]) -> None:
        fit = self._fit()
        self._scheduler.count(len(chosen))
        for mutant in chosen:
            able = [f for f in fit if mutant.place in self.clean[f.id].reached]
            declared = mutant.result in equivalent
            # A declared equivalent is tried on more examples than a cached kill was, so it is tried again.
            cached = None if declared or self.plan.fresh else self._cached(mutant, able)
            if cached is not None:
                self._close(cached)
            elif able:
                self._waiting.append(_Pending(mutant, able, declared))
            else:
                self._close(Judged(mutant=mutant, status=MutantStatus.NO_COVERAGE))

    def _try_mutants(self) -> None:
        for _ in range(self.plan.jobs):
            self._start_next()
        for pending, found in self._ended_trials():
            if isinstance(pending, _Pending):
                self._judge(pending, found)

    def _ended_trials(self) -> Iterator[tuple[_Pending | Falsifier, Trial]]:
        """Yield every trial as it ends; a kill of a mutant is stored first, so that an interrupted run loses none."""
        for key, trial in self._scheduler.trials(lambda key: self._cache.begin(id(key))):
            since = self._cache.end(id(key))
            if isinstance(key, _Pending) and not key.equivalent:
                self._store(key.mutant, self._falsifier(trial.falsifier), trial, since)
            yield key, trial

    def _falsifier(self, name: str) -> Falsifier:
        return next(falsifier for falsifier in self.falsifiers if falsifier.id == name)

    def _cached(self, mutant: Automatic, able: Sequence[Falsifier]) -> Judged | None:
        """Return the mutant as a falsifier in `able` killed it in an earlier run; None if there is no such result."""
        for falsifier in able:
            trial = self._cache.lookup(self._key(falsifier, mutant), partial(_kills, falsifier))
            if trial is not None:
                status, seen = judge.status(trial), judge.error_line(trial)
                assert status is not None
                return Judged(mutant=mutant, status=status, tried=(falsifier.id,), seen=seen, cached=True)
        return None

    def _store(self, mutant: Automatic, falsifier: Falsifier, trial: Trial, since: int) -> None:
        """Store a trial that killed a mutant.

        Trials in which a falsifier held are not stored: a survivor has one of every falsifier, so they would be most of
        the cache.
        """
        if not _kills(falsifier, trial):
            return
        source = tasks.source_of(self._body(falsifier, self._conditions(falsifier, mutant)), falsifier, [trial])
        # Results of a suite may come from runs that other workers began earlier, which opened files then.
        since = 0 if source.depends_on is Depends.SHARED else since
        self._cache.store(self._key(falsifier, mutant), "", replace(trial, reads=None), source, since)

    def _key(self, falsifier: Falsifier, mutant: Automatic) -> str:
        """Return the key of a trial on a mutant; it is the key of the same trial in a validation."""
        conditions = self._conditions(falsifier, mutant)
        owner, body = self._owners[falsifier.id], self._body(falsifier, conditions)
        return self._cache.key(tasks.identity(owner, falsifier, [body], conditions, spawn=self.plan.spawn))

    def _body(self, falsifier: Falsifier, conditions: Conditions) -> tasks.Body:
        return tasks.attack(self._codes[falsifier.id], self._owners[falsifier.id], falsifier, conditions)

    def _conditions(self, falsifier: Falsifier, mutant: Automatic | None) -> Conditions:
        """Return the conditions of a trial on a mutant, or with None on the clean code."""
        run = engine_of(falsifier).run_of(self._owners[falsifier.id], falsifier)
        return Conditions(
            mutant=mutant.mutant if mutant is not None else None,
            execute=(run.small or {}) if run is not None else None,
            statements=mutant is None,
            guarded=True,
        )

    def _start_next(self) -> None:
        if self._waiting:
            self._try(self._waiting.popleft())

    def _try(self, pending: _Pending) -> None:
        """Try a mutant on the falsifier likely to kill it soonest: a fast one, first those that killed others here."""
        name = pending.mutant.function
        one = min(pending.left, key=lambda f: self.clean[f.id].seconds / (1 + self._kills[name, f.id]))
        pending.left.remove(one)
        pending.tried.append(one.id)
        harder = HARDER if pending.equivalent else 1
        limit = judge.limit_on_mutant(self.clean[one.id]) * harder
        if not engine_of(one).timeout_kills:
            limit = engine_of(one).limit_s(self._owners[one.id], one, Conditions())
        self._submit(one, pending, limit, examples=one.examples * harder)

    def _judge(self, pending: _Pending, found: Trial) -> None:
        status = _status(self._falsifier(found.falsifier), found)
        if status is None and pending.left:
            self._try(pending)
            return
        if status in DETECTED:
            self._kills[pending.mutant.function, found.falsifier] += 1
            status = MutantStatus.NOT_EQUIVALENT if pending.equivalent else status
        undetected = MutantStatus.EQUIVALENT if pending.equivalent else MutantStatus.SURVIVED
        seen = judge.error_line(found) if status is not None else ""
        self._close(Judged(mutant=pending.mutant, status=status or undetected, tried=tuple(pending.tried), seen=seen))
        self._start_next()

    def _close(self, judged: Judged) -> None:
        self.judged.append(judged)
        self._scheduler.advance()

    def _submit(
        self, falsifier: Falsifier, pending: _Pending | None, limit_s: float, examples: int | None = None
    ) -> None:
        automatic = pending.mutant if pending is not None else None
        directory = self._scheduler.scratch()
        conditions = replace(self._conditions(falsifier, automatic), examples=examples, directory=str(directory))
        job = Job(
            key=pending if pending is not None else falsifier,
            body=self._body(falsifier, conditions),
            limit_s=limit_s,
            claim=falsifier.id,
            label=f"{falsifier.id} on {automatic.function}" if automatic is not None else falsifier.id,
            mutant=automatic.mutant.id if automatic is not None else None,
            seed=seed_of(falsifier.id, 0),
            directory=directory,
        )
        self._scheduler.submit(job)


def _status(falsifier: Falsifier, trial: Trial) -> MutantStatus | None:
    """Return the status that a trial by a falsifier gives the mutant; None if the next falsifier is tried."""
    status = judge.status(trial)
    if status is MutantStatus.TIMEOUT and not engine_of(falsifier).timeout_kills:
        return None  # a proof that needs longer has detected nothing
    return status


def _kills(falsifier: Falsifier, trial: Trial) -> bool:
    return _status(falsifier, trial) in DETECTED
