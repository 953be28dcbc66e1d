"""The options of a validation, its attempts, the tasks that workers get for them, and the evidence so far."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pv.contract.claims import Falsifier, Run
from pv.contract.model import Contract
from pv.contract.mutants import Mutant
from pv.contract.names import Target
from pv.engines.code import Code
from pv.engines.engine import Conditions
from pv.engines.registry import engine_of
from pv.results.reuse.cache import Reuse
from pv.results.trial import RunTrace, Trial
from pv.source.imports import Imports
from pv.source.project import Project
from pv.workers import device, tasks
from pv.workers.pools import Pools
from pv.workers.scheduler import OnProgress
from pv.workers.tasks import Body


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a validation; see `pv.validate`.

    record: write proofs and results of other devices than the CPU as they come. reuse: the results of earlier ones.
    pools: workers that outlive it, None for workers of its own.
    """

    jobs: int
    fail_fast: bool = False
    examples: int | None = None
    seed: int = 0
    replay: str = ""
    spawn: bool = False
    probe: device.Probe | None = None
    on_progress: OnProgress | None = None
    record: bool = False
    reuse: Reuse | None = None
    pools: Pools | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One execution of a run, shared by the falsifiers that read the run of the same subject."""

    run: str
    subject: Target | None
    device: str
    small: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of a falsifier, or where there is none the execution of `run` on `subject`.

    small: whether the run has its `small` arguments, at which mutants are judged. first: the search whose
    counterexample is replayed.
    """

    contract: Contract
    device: str
    falsifier: Falsifier | None = None
    mutant: Mutant | None = None
    run: Run | None = None
    subject: Target | None = None
    small: bool = False
    first: Trial | None = None

    @property
    def execution(self) -> Execution:
        """Return which execution of a run this is."""
        name = self.run.name if self.run is not None else ""
        return Execution(run=name, subject=self.subject, device=self.device, small=self.small)

    def __str__(self) -> str:
        name = self.falsifier.id if self.falsifier is not None else f"run {self.run.name if self.run else ''}"
        return f"{name} / {self.mutant.id}" if self.mutant is not None else name


@dataclass(slots=True)
class RunState:
    """A run that was started: the directory of its record, its trial, and the falsifiers that wait for it."""

    directory: Path
    trial: Trial | None = None
    waiting: list[Falsifier] = field(default_factory=list)
    trace: RunTrace | None = None


def with_run(trial: Trial, run: Trial) -> Trial:
    """Return the trial of a predicate with the coverage, the times and the files of the run that it read."""
    seconds, cpu_s, files = trial.seconds + run.seconds, trial.cpu_s + run.cpu_s, trial.files | run.files
    return replace(trial, reached=run.reached, seconds=seconds, cpu_s=cpu_s, files=files)


@dataclass(slots=True)
class PartialEvidence:
    """The evidence gathered for one contract so far."""

    trials: dict[tuple[str, str], Trial] = field(default_factory=dict)
    mutants: dict[tuple[str, str], Trial] = field(default_factory=dict)
    runs: dict[Execution, RunState] = field(default_factory=dict)
    automatic: dict[str, Iterator[Mutant]] = field(default_factory=dict)
    """For each falsifier that declares no mutant, the automatic ones that it has not been tried on yet."""
    drawn: dict[str, int] = field(default_factory=dict)
    """Number of automatic mutants that were drawn for each of them so far."""


class Tasks:
    """The tasks of one validation. `subjects` gives contracts, by id, another subject than their own."""

    def __init__(self, project: Project, subjects: Mapping[str, Target], options: Options) -> None:
        self.project, self.subjects, self.options = project, subjects, options
        self._codes: dict[Target, Code] = {}
        self._imports = Imports(project)

    def subject(self, contract: Contract, claim: Falsifier | Run, *, of_contract: bool = False) -> Target:
        """Return the code that a falsifier attacks. Mutants are faults of the contract's `own` subject."""
        other = None if of_contract else self.subjects.get(contract.id)
        return other or contract.subject_of(claim)

    def attack(self, attempt: Attempt, falsifier: Falsifier, conditions: Conditions) -> Body:
        """Return the task of a falsifier on its subject or on a mutant.

        Where no mutant is declared, automatic ones are drawn from the statements that ran, and kept from writing to
        the project.
        """
        code = self._code(attempt.contract, falsifier, of_contract=attempt.mutant is not None and bool(falsifier.kills))
        if not falsifier.kills:
            conditions = replace(conditions, statements=attempt.mutant is None, guarded=attempt.mutant is not None)
        return tasks.attack(code, attempt.contract, falsifier, conditions)

    def conditions(self, attempt: Attempt) -> Conditions:
        """Return the conditions of an attempt: a search, or the replay of the counterexample of a first search."""
        replay = self.options.replay
        if attempt.first is not None and attempt.first.counterexample is not None:
            replay = json.dumps(dict(attempt.first.counterexample.arguments))
        options = self.options
        return Conditions(
            device=attempt.device, examples=options.examples, seed=options.seed, mutant=attempt.mutant, replay=replay
        )

    def execute(self, attempt: Attempt, falsifier: Falsifier, run: Run, directory: Path) -> Body:
        """Return the task that executes the run that a falsifier reads."""
        arguments = (run.small or {}) if attempt.small else run.arguments
        code = self._code(attempt.contract, falsifier, of_contract=attempt.small)
        return tasks.execute(code, run, Conditions(device=attempt.device, directory=str(directory), execute=arguments))

    def execution(self, attempt: Attempt, falsifier: Falsifier, run: Run) -> Attempt:
        """Return the attempt that executes the run that a falsifier reads."""
        subject = self.subject(attempt.contract, falsifier, of_contract=attempt.small)
        return replace(attempt, falsifier=None, run=run, subject=subject)

    def kept_as(self, attempt: Attempt, claim: Falsifier) -> list[Body]:
        """Return the tasks whose results make a result on the subject: its own, and that of the run that it reads."""
        run = engine_of(claim).run_of(attempt.contract, claim)
        if run is None:
            return [self.attack(attempt, claim, self.conditions(attempt))]
        executing = self.execution(attempt, claim, run)
        read = self.attack(attempt, claim, Conditions(device=attempt.device))
        return [read, self.execute(executing, claim, run, Path())]

    def identity(self, attempt: Attempt, claim: Falsifier, bodies: list[Body]) -> list[object]:
        """Return what tells the result of an attempt from others, as JSON data."""
        limit_s = engine_of(claim).limit_s(attempt.contract, claim, self.conditions(attempt))
        return [[body.identity() for body in bodies], limit_s, self.options.spawn]

    def _code(self, contract: Contract, falsifier: Falsifier, *, of_contract: bool) -> Code:
        """Return the resolved subject of a falsifier."""
        subject = self.subject(contract, falsifier, of_contract=of_contract)
        return self._codes.setdefault(subject, Code(self.project, subject, self._imports))
