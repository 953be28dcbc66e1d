"""`Attempt`, a claim to try or a run to execute, with all data for the worker and the cache; built by `Attempts`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pv.contract.model import Contract, Falsifier, Mutant, Run, Target
from pv.engines.code import ResolvedCode
from pv.engines.engine import Conditions
from pv.engines.registry import engine_of
from pv.engines.seed import seed_of
from pv.engines.trial import Trial
from pv.source.imports import Imports
from pv.source.project import Project
from pv.workers import tasks
from pv.workers.tasks import Body


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attempt:
    """A claim that is tried once, or a run that is executed once for all claims that read it.

    Attempts are compared by identity: two attempts on the same claim are not equal.

    Attributes:
        contract: The contract of the claim.
        claim: The claim; for a run, the first claim that reads it.
        subject: The code that the claim is about.
        conditions: The device, the mutant, the number of examples, the example to replay.
        body: The message to the worker.
        limit_s: The limit in seconds on CPU time, and on waiting time.
        task: The JSON data from which the key of a cached result is computed.
        seed: The seed of the examples.
        run: The attempt whose record the claim reads; it is executed first.
        executes: The run that this attempt executes; None if it tries the claim.
        small: Whether the run has its `small` arguments, with which mutants are judged.
        replayed: The trial whose counterexample this attempt replays; None for a search.
    """

    contract: Contract
    claim: Falsifier
    subject: Target
    conditions: Conditions
    body: Body
    limit_s: float
    task: Sequence[object] = ()
    seed: int = 0
    run: "Attempt | None" = None
    executes: Run | None = None
    small: bool = False
    replayed: Trial | None = None

    @property
    def device(self) -> str:
        """The device to run on."""
        return self.conditions.device

    @property
    def mutant(self) -> Mutant | None:
        """The mutant to plant; None for the clean code."""
        return self.conditions.mutant

    @property
    def is_clean(self) -> bool:
        """Whether the claim is tried as its contract states it: on the clean code, with the run's usual arguments."""
        return self.mutant is None and not self.small and self.executes is None

    def __str__(self) -> str:
        name = self.claim.id if self.executes is None else f"run {self.executes.name}"
        return f"{name} / {self.mutant.id}" if self.mutant is not None else name


class Attempts:
    """Builds the attempts of one command.

    A method that builds an attempt raises `Unbound` if a name in the claim, the run or the mutant cannot be resolved.

    Args:
        project: The project of the contracts.
        subjects: Subjects to test instead of the contracts' own subjects, by contract id.
        examples: Number of examples per claim (default: from the contract).
        seed: Seed of the examples.
        replay: The example to try instead of a search.
        spawn: Whether every worker is a new interpreter, which the key of a result depends on.
    """

    def __init__(
        self,
        project: Project,
        subjects: Mapping[str, Target] | None = None,
        *,
        examples: int | None = None,
        seed: int = 0,
        replay: str = "",
        spawn: bool = False,
    ) -> None:
        self.project, self.subjects, self.seed = project, subjects or {}, seed
        self._examples, self._replay, self._spawn = examples, replay, spawn
        self._codes: dict[Target, ResolvedCode] = {}
        self._imports = Imports(project)
        self._runs: dict[tuple[str, str, Target, str, bool], Attempt] = {}

    def subject(self, contract: Contract, claim: Falsifier | Run, *, of_contract: bool = False) -> Target:
        """Return the code that a claim is about.

        Args:
            contract: The contract of the claim.
            claim: A falsifier or a run.
            of_contract: Ignore `subjects`. Declared mutants need this, since they change the contract's own subject.
        """
        other = None if of_contract else self.subjects.get(contract.id)
        return other or contract.subject_of(claim)

    def clean(self, contract: Contract, claim: Falsifier, device: str = "cpu", *, small: bool = False) -> Attempt:
        """Return the attempt of a claim on the clean code.

        Args:
            contract: The contract of the claim.
            claim: The claim.
            device: The device to run on.
            small: Execute the run of the claim with its `small` arguments, on the contract's own subject.
        """
        run = self.run(contract, claim, device, small=small)
        # A predicate on the record of a run draws no examples, so it needs neither a number of examples nor a seed.
        conditions = Conditions(device=device) if run is not None else self._search(device)
        # Mutants are generated only from statements that ran, so the clean trial records the statements.
        conditions = replace(conditions, statements=not claim.kills)
        return self._attempt(contract, claim, conditions, run=run, small=small)

    def mutated(
        self, contract: Contract, claim: Falsifier, mutant: Mutant, *, clean_limit_s: float | None = None
    ) -> Attempt:
        """Return the attempt of a claim on a mutant.

        Args:
            contract: The contract of the claim.
            claim: The claim.
            mutant: The mutant: declared if the claim names mutants in `kills`, else generated.
            clean_limit_s: The limit that follows from the time of the claim on the clean code; None if unknown.
        """
        # A generated mutant may do anything, so a guard prevents it from writing to the project. A declared mutant has
        # no guard, because its author has read it.
        conditions = replace(self._search("cpu"), mutant=mutant, guarded=not claim.kills)
        attempt = self.in_one_worker(contract, claim, conditions, of_contract=bool(claim.kills))
        if clean_limit_s is None or not engine_of(claim).timeout_kills:
            return attempt
        return replace(attempt, limit_s=min(attempt.limit_s, clean_limit_s))

    def in_one_worker(
        self, contract: Contract, claim: Falsifier, conditions: Conditions, *, of_contract: bool = False
    ) -> Attempt:
        """Return an attempt that executes the run of the claim, with any `small` arguments, and tries the claim.

        A claim without a run is only tried.

        Args:
            contract: The contract of the claim.
            claim: The claim.
            conditions: The conditions of the attempt.
            of_contract: As for `subject`.
        """
        run = engine_of(claim).run_of(contract, claim)
        if run is not None:
            execute = run.small if run.small is not None else run.arguments
            conditions = replace(conditions, examples=None, seed=0, execute=execute)
        return self._attempt(contract, claim, conditions, of_contract=of_contract)

    def confirmation(self, attempt: Attempt, trial: Trial) -> Attempt:
        """Return the attempt that replays the counterexample of a search, `trial` of `attempt`, in a new worker."""
        assert trial.counterexample is not None
        replay = json.dumps(dict(trial.counterexample.arguments))
        conditions = replace(attempt.conditions, replay=replay)
        of_contract = attempt.mutant is not None and bool(attempt.claim.kills)
        confirmation = self._attempt(attempt.contract, attempt.claim, conditions, of_contract=of_contract)
        return replace(confirmation, replayed=trial, limit_s=attempt.limit_s)

    def run(self, contract: Contract, claim: Falsifier, device: str, *, small: bool = False) -> Attempt | None:
        """Return the attempt that executes the run of a claim; None if the claim reads no run.

        All claims that read a run get the same attempt.
        """
        run = engine_of(claim).run_of(contract, claim)
        if run is None:
            return None
        subject = self.subject(contract, claim, of_contract=small)
        key = (contract.id, run.name, subject, device, small)
        if key not in self._runs:
            arguments = (run.small or {}) if small else run.arguments
            conditions = Conditions(device=device, execute=arguments)
            self._runs[key] = Attempt(
                contract=contract,
                claim=claim,
                subject=subject,
                conditions=conditions,
                body=tasks.execute(self._code(subject), run, conditions),
                limit_s=run.limit_s,
                executes=run,
                small=small,
            )
        return self._runs[key]

    def _search(self, device: str) -> Conditions:
        """Return the conditions of a search, or of a replay if an example was requested."""
        return Conditions(device=device, examples=self._examples, seed=self.seed, replay=self._replay)

    def _attempt(
        self,
        contract: Contract,
        claim: Falsifier,
        conditions: Conditions,
        *,
        run: Attempt | None = None,
        small: bool = False,
        of_contract: bool = False,
    ) -> Attempt:
        """Build the attempt of a claim under some conditions."""
        subject = self.subject(contract, claim, of_contract=of_contract)
        body = tasks.attack(self._code(subject), contract, claim, conditions)
        bodies = [body] if run is None else [body, run.body]
        return Attempt(
            contract=contract,
            claim=claim,
            subject=subject,
            conditions=conditions,
            body=body,
            limit_s=engine_of(claim).limit_s(contract, claim, conditions),
            task=tasks.identity(contract, claim, bodies, conditions, spawn=self._spawn),
            seed=seed_of(claim.id, self.seed),
            run=run,
            small=small,
        )

    def _code(self, subject: Target) -> ResolvedCode:
        """Return the resolved code of a subject, which is computed once per subject."""
        return self._codes.setdefault(subject, ResolvedCode(self.project, subject, self._imports))
