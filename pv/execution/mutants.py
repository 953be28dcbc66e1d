"""The plan of `pv mutate`: every generated mutant is tried on the falsifiers that cover it, until one kills it."""

import random
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from pv.contract.model import NO_SCOPE, Contract, Falsifier
from pv.engines.engine import Conditions
from pv.engines.registry import engine_of
from pv.engines.trial import Trial, TrialStatus
from pv.execution.attempt import Attempt, Attempts
from pv.execution.consumers import Journal, OnProgress, Progress
from pv.execution.executor import Executor
from pv.execution.plan import Cancelled, Consumer, Finished, Step
from pv.mutation import judge, scope
from pv.mutation.generate import GeneratedMutant, Module, digest_of_code
from pv.mutation.judge import DETECTED, Judged, MutantStatus, MutationResult
from pv.results.reuse.cache import ResultCache
from pv.source import resolve
from pv.source.patch import patch
from pv.source.project import Project
from pv.workers import tasks
from pv.workers.pool import Pool

EQUIVALENT_FACTOR = 10
"""Factor on the number of examples with which a falsifier is tried on a mutant that is declared to be equivalent."""


@dataclass(slots=True)
class _Pending:
    """A mutant that is being tried.

    Attributes:
        mutant: The mutant.
        untried: The falsifiers that have not been started on the mutant.
        equivalent: Whether the contract declares the mutant to be equivalent.
        tried: The ids of the falsifiers that have been started on the mutant.
    """

    mutant: GeneratedMutant
    untried: list[Falsifier]
    equivalent: bool
    tried: list[str] = field(default_factory=list)


class MutantTrials:
    """The plan that tries the falsifiers on the generated mutants of one contract. `run` creates its executor.

    1. Try every falsifier on the clean code, and record its coverage and its time.
    2. Generate the mutants of the covered code. A mutant with a cached kill is not tried again, unless it is
       declared equivalent.
    3. Try one falsifier after the other on every remaining mutant, until one kills it. At most `jobs` mutants are tried
       at the same time, because the order of the falsifiers is chosen from the previous kills.

    Args:
        project: The project of the contract.
        contract: The contract whose code is mutated.
        falsifiers: The claims of the contract, and of the contracts in `contract.judges`, that judge the mutants.
        jobs: Number of workers.
        sample: Number of mutants to draw; None for all.
        seed: Seed of the sample.
        widely: Also mutate the modules that the subjects import.
        modules: Glob patterns of the only modules to mutate.
        fresh: Ignore cached kills.
        spawn: Start every worker in a new interpreter.
    """

    def __init__(
        self,
        project: Project,
        contract: Contract,
        falsifiers: Sequence[Falsifier],
        *,
        jobs: int,
        sample: int | None = None,
        seed: int = 0,
        widely: bool = False,
        modules: Sequence[str] = (),
        fresh: bool = False,
        spawn: bool = False,
    ) -> None:
        self.project, self.contract = project, contract
        self.falsifiers = [f for f in falsifiers if engine_of(f).bound and "cpu" in f.devices]
        self.restricted = widely or bool(modules) or len(falsifiers) < len(scope.judging_claims(contract))
        self._jobs, self._sample, self._seed = jobs, sample, seed
        self._widely, self._requested, self._fresh, self._spawn = widely, modules, fresh, spawn
        self.clean: dict[str, Trial] = {}
        self.judged: list[Judged] = []
        self._owners = scope.owners(contract)
        self._attempts = Attempts(project, spawn=spawn)
        self._journal: Journal
        self._chosen: list[GeneratedMutant] = []
        self._equivalent: dict[str, str] = {}
        """The declared equivalents as text for messages, by the digest of the mutated module's compiled code."""
        self._kills: Counter[tuple[str, str]] = Counter()
        self._waiting: deque[_Pending] = deque()
        self._running: dict[Attempt, _Pending] = {}
        self._scope = NO_SCOPE if widely else contract.mutation_scope
        self._idle: tuple[str, ...] = ()
        """The modules in the mutation scope that no falsifier runs."""

    def run(self, on_progress: OnProgress | None = None) -> MutationResult:
        """Try the mutants and return their statuses; try none if no requested module is in the mutation scope."""
        requested = self._requested
        if not requested or scope.matching(scoped := self._modules(self.falsifiers), requested):
            return self._try_all(on_progress)
        return MutationResult(
            contract=self.contract,
            falsifiers=tuple(f.id for f in self.falsifiers),
            total=0,
            judged=(),
            scope=self._scope.names,
            restricted=True,
            elsewhere=scope.no_match_message(self.contract, scoped, requested, widely=self._widely),
        )

    def _try_all(self, on_progress: OnProgress | None) -> MutationResult:
        """Try the falsifiers on the clean code and on the chosen mutants, and return the result."""
        targets = scope.subjects(self.contract, self.falsifiers)
        preload = tasks.preload(self.project, [self.contract, *self.contract.judges], targets)
        with (
            closing(ResultCache(self.project)) as cache,
            Pool(preload, self._jobs, spawn=self._spawn) as pool,
        ):
            self._journal = Journal(cache, self._supports, fresh=self._fresh)
            executor = Executor(pool, self._journal)
            clean = [self._attempt(falsifier) for falsifier in self.falsifiers]
            executor.consumers = self._consumers(on_progress)
            self.clean = {trial.falsifier: trial for trial in executor.trials(clean)}
            generated = self._generate()
            self._chosen = self.choose(generated)
            self._equivalent = self._declared_equivalents()
            executor.consumers = self._consumers(on_progress, len(self._chosen))
            executor.run(self)
        order = {mutant.mutant.id: place for place, mutant in enumerate(self._chosen)}
        # Report declared equivalents that match no mutant, but only if all mutants were generated.
        digests = {mutant.code_digest for mutant in generated}
        unused = (text for digest, text in self._equivalent.items() if digest not in digests and not self.restricted)
        return MutationResult(
            contract=self.contract,
            falsifiers=tuple(f.id for f in self._judges()),
            total=len(generated),
            judged=tuple(sorted(self.judged, key=lambda j: order[j.mutant.mutant.id])),
            unfit=tuple(t for t in self.clean.values() if t.status not in (TrialStatus.HELD, TrialStatus.SKIPPED)),
            unused=tuple(unused),
            idle=() if self.restricted else self._idle,
            scope=self._scope.names,
            files=frozenset().union(*(t.files for t in self.clean.values())),
            restricted=self.restricted,
        )

    def _consumers(self, on_progress: OnProgress | None, mutants: int | None = None) -> list[Consumer]:
        """Return the journal and, with a callback, the progress, counted in attempts or in `mutants` mutants."""
        return [self._journal, *([Progress(on_progress, mutants)] if on_progress is not None else [])]

    def _attempt(
        self, falsifier: Falsifier, mutant: GeneratedMutant | None = None, examples: int | None = None
    ) -> Attempt:
        """Return the attempt of a falsifier on a mutant; on the clean code if the mutant is None."""
        conditions = Conditions(
            mutant=mutant.mutant if mutant is not None else None,
            examples=examples,
            statements=mutant is None,
            guarded=True,
        )
        return self._attempts.in_one_worker(self._owners[falsifier.id], falsifier, conditions)

    def _judges(self) -> list[Falsifier]:
        """Return the falsifiers that held on the clean code. Only these can judge mutants."""
        return [f for f in self.falsifiers if self.clean[f.id].status is TrialStatus.HELD]

    def _generate(self) -> list[GeneratedMutant]:
        """Generate the mutants of the code in the mutation scope that the falsifiers reached."""
        judges = self._judges()
        reached = frozenset().union(*(self.clean[f.id].reached for f in judges))
        if self._scope.modules:
            self._idle = tuple(m.text for m in self._scope.modules if not any(map(m.holds, reached)))
            reached = frozenset(filter(self._scope.holds, reached))
        return scope.mutants(scope.matching(self._modules(judges), self._requested), reached)

    def _modules(self, judges: Sequence[Falsifier]) -> list[Module]:
        """Return the modules in the mutation scope, before the requested modules are selected."""
        if self._widely:
            return scope.imported_modules(self.project, scope.under_contract(self.contract, judges))
        if self._scope.modules:
            return scope.scope_modules(self.project, self.contract)
        return scope.default_modules(self.project, self.contract, judges)

    def choose(self, generated: Sequence[GeneratedMutant]) -> list[GeneratedMutant]:
        """Return the mutants to try: all, or a random sample, in their original order."""
        if self._sample is None or self._sample >= len(generated):
            return list(generated)
        drawn = set(random.Random(self._seed).sample(range(len(generated)), self._sample))
        return [mutant for place, mutant in enumerate(generated) if place in drawn]

    def _declared_equivalents(self) -> dict[str, str]:
        """Return the declared equivalents of the contract; see `_equivalent`."""
        # Equivalents are compared by compiled code, so the text of a declaration may differ from the generated text.
        texts = {}
        for declared in self.contract.equivalents:
            change = declared.change
            path = resolve.target_file(self.project, change.function)
            changed = patch(resolve.source(path), change.function.attribute, change.find, change.replace)
            digest = digest_of_code(resolve.module_name(self.project, path), changed)
            texts[digest] = f"{declared.location}: {change.find} -> {change.replace}"
        return texts

    def start(self) -> Iterator[Step]:
        judges = self._judges()
        for mutant in self._chosen:
            covering = [f for f in judges if mutant.coverage_name in self.clean[f.id].reached]
            # A declared equivalent is always tried again, with more examples.
            equivalent = mutant.code_digest in self._equivalent
            if not equivalent and (cached := self._cached_kill(mutant, covering)) is not None:
                yield self._conclude(cached)
            elif covering:
                self._waiting.append(_Pending(mutant, covering, equivalent))
            else:
                yield self._conclude(Judged(mutant=mutant, status=MutantStatus.NO_COVERAGE))
        for _ in range(self._jobs):
            yield from self._start_next()

    def follow(self, event: Finished | Cancelled) -> Iterator[Step]:
        assert isinstance(event, Finished)
        pending, claim, trial = self._running.pop(event.attempt), event.attempt.claim, event.trial
        status = _status(claim, trial)
        if status is None and pending.untried:
            yield self._try(pending)
            return
        if status in DETECTED:
            self._kills[pending.mutant.function, claim.id] += 1
        final = judge.final_status(status, equivalent=pending.equivalent)
        seen = judge.error_line(trial) if status is not None else ""
        tried = tuple(pending.tried)
        yield self._conclude(Judged(mutant=pending.mutant, status=final, tried=tried, seen=seen))
        yield from self._start_next()

    def _cached_kill(self, mutant: GeneratedMutant, covering: Sequence[Falsifier]) -> Judged | None:
        """Return the cached kill of a mutant by one of the falsifiers that cover it; None if no kill is cached."""
        for falsifier in covering:
            trial = self._journal.lookup(self._attempt(falsifier, mutant))
            if trial is not None:
                status, seen = judge.status(trial), judge.error_line(trial)
                assert status is not None
                return Judged(mutant=mutant, status=status, tried=(falsifier.id,), seen=seen, cached=True)
        return None

    def _supports(self, attempt: Attempt, trial: Trial) -> bool:
        """Return whether a trial may be cached and reused: only a trial that kills a mutant.

        Trials that mutants survive would fill the cache: a survivor has a trial of every falsifier. Trials on declared
        equivalents are not cached either, because their limits are different.
        """
        pending = self._running.get(attempt)
        has_usual_limits = pending is None or not pending.equivalent
        return attempt.mutant is not None and has_usual_limits and _status(attempt.claim, trial) in DETECTED

    def _start_next(self) -> Iterator[Step]:
        """Yield the first attempt on the next waiting mutant, if there is one."""
        if self._waiting:
            yield self._try(self._waiting.popleft())

    def _try(self, pending: _Pending) -> Attempt:
        """Return the next attempt on a mutant: of the falsifier that is likely to kill it in the least time."""
        # Prefer falsifiers that are fast on the clean code, and falsifiers that killed other mutants of the function.
        function = pending.mutant.function
        falsifier = min(pending.untried, key=lambda f: self.clean[f.id].seconds / (1 + self._kills[function, f.id]))
        pending.untried.remove(falsifier)
        pending.tried.append(falsifier.id)
        # More examples take more time, so the limit is multiplied by the same factor.
        factor = EQUIVALENT_FACTOR if pending.equivalent else 1
        examples = falsifier.examples * factor if pending.equivalent else None
        attempt = self._attempt(falsifier, pending.mutant, examples)
        if engine_of(falsifier).timeout_kills:
            attempt = replace(attempt, limit_s=judge.limit_on_mutant(self.clean[falsifier.id]) * factor)
        self._running[attempt] = pending
        return attempt

    def _conclude(self, judged: Judged) -> Judged:
        """Add a judged mutant to the results, and return it as a step, which the executor sends to the consumers."""
        self.judged.append(judged)
        return judged


def _status(falsifier: Falsifier, trial: Trial) -> MutantStatus | None:
    """Return the status of a mutant after a trial; None if the next falsifier must be tried."""
    status = judge.status(trial)
    if status is MutantStatus.TIMEOUT and not engine_of(falsifier).timeout_kills:
        return None  # a proof may reach its limit on correct code too, so the timeout does not kill the mutant
    return status
