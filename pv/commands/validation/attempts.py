"""The options of a validation, its attempts, the tasks that workers get for them, and the evidence so far."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pv.contract.model import Contract, Falsifier, Mutant, Run, Target
from pv.engines.code import Code
from pv.engines.engine import Conditions
from pv.engines.registry import engine_of
from pv.results.reuse.cache import ResultCache
from pv.results.trial import RunTrace, Trial
from pv.source.imports import Imports
from pv.source.project import Project
from pv.workers import device, tasks
from pv.workers.pool import PoolCache
from pv.workers.scheduler import OnProgress
from pv.workers.tasks import Body


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a validation that decide how attempts run; the others are described at `pv.validate`.

    Attributes:
        jobs: Number of workers.
        record: Write proofs and results of devices other than the CPU as soon as they are measured.
        reuse: The cache of earlier results; None to measure everything.
        pools: Workers that are shared with other validations; None to start separate workers.
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
    reuse: ResultCache | None = None
    pools: PoolCache | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """The key of an execution of a run: falsifiers with the same key read the same record."""

    run: str
    subject: Target | None
    device: str
    small: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt: either a falsifier trial or, if `falsifier` is None, the execution of `run` on `subject`.

    Attributes:
        contract: The contract of the falsifier or run.
        device: The device to run on.
        mutant: The mutant to plant; None for the clean code.
        small: Whether the run has its `small` arguments, which mutants are judged with.
        first: The search whose counterexample is replayed; None for a search.
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
        """Return the key of the execution of a run."""
        name = self.run.name if self.run is not None else ""
        return Execution(run=name, subject=self.subject, device=self.device, small=self.small)

    def __str__(self) -> str:
        name = self.falsifier.id if self.falsifier is not None else f"run {self.run.name if self.run else ''}"
        return f"{name} / {self.mutant.id}" if self.mutant is not None else name


@dataclass(slots=True)
class RunState:
    """A run that was started.

    Attributes:
        directory: The directory of its record.
        trial: The trial; None while it runs.
        waiting: The falsifiers that read the run once it has ended.
        trace: The trace for reports.
    """

    directory: Path
    trial: Trial | None = None
    waiting: list[Falsifier] = field(default_factory=list)
    trace: RunTrace | None = None


def with_run(trial: Trial, run: Trial) -> Trial:
    """Return the trial of a predicate with the coverage, times and files of the run that it read."""
    # The predicate itself only reads a record: the code under contract ran in the worker of the run.
    seconds, cpu_s, files = trial.seconds + run.seconds, trial.cpu_s + run.cpu_s, trial.files | run.files
    return replace(trial, reached=run.reached, seconds=seconds, cpu_s=cpu_s, files=files)


@dataclass(slots=True)
class PartialEvidence:
    """The evidence on one contract so far."""

    trials: dict[tuple[str, str], Trial] = field(default_factory=dict)
    mutants: dict[tuple[str, str], Trial] = field(default_factory=dict)
    runs: dict[Execution, RunState] = field(default_factory=dict)
    automatic: dict[str, Iterator[Mutant]] = field(default_factory=dict)
    """The generated mutants still to try, by id of a falsifier that declares no mutant."""
    drawn: dict[str, int] = field(default_factory=dict)
    """The number of generated mutants drawn so far, by id of the falsifier."""


class Tasks:
    """Builds the tasks of one validation.

    Args:
        project: The project of the contracts.
        subjects: Requested subjects by id of the contract; other contracts keep their own subject.
        options: The options of the validation.
    """

    def __init__(self, project: Project, subjects: Mapping[str, Target], options: Options) -> None:
        self.project, self.subjects, self.options = project, subjects, options
        self._codes: dict[Target, Code] = {}
        self._imports = Imports(project)

    def subject(self, contract: Contract, claim: Falsifier | Run, *, of_contract: bool = False) -> Target:
        """Return the code that a claim is about.

        Args:
            contract: The contract of the claim.
            claim: A falsifier or a run.
            of_contract: Ignore a requested subject: declared mutants are faults of the contract's own subject.
        """
        other = None if of_contract else self.subjects.get(contract.id)
        return other or contract.subject_of(claim)

    def attack(self, attempt: Attempt, falsifier: Falsifier, conditions: Conditions) -> Body:
        """Return the task of a falsifier on its subject or on a mutant of it."""
        code = self._code(attempt.contract, falsifier, of_contract=attempt.mutant is not None and bool(falsifier.kills))
        # Generated mutants are drawn among the statements that ran, so the clean trial records them; unlike a declared
        # mutant, a generated one may do anything, so it is kept from writing to the project.
        if not falsifier.kills:
            conditions = replace(conditions, statements=attempt.mutant is None, guarded=attempt.mutant is not None)
        return tasks.attack(code, attempt.contract, falsifier, conditions)

    def conditions(self, attempt: Attempt) -> Conditions:
        """Return the conditions of an attempt: those of a search, or of the replay of `attempt.first`."""
        replay = self.options.replay
        if attempt.first is not None and attempt.first.counterexample is not None:
            replay = json.dumps(dict(attempt.first.counterexample.arguments))
        options = self.options
        return Conditions(
            device=attempt.device, examples=options.examples, seed=options.seed, mutant=attempt.mutant, replay=replay
        )

    def execute(self, attempt: Attempt, falsifier: Falsifier, run: Run, directory: Path) -> Body:
        """Return the task that executes the run of a falsifier and records it in a directory."""
        arguments = (run.small or {}) if attempt.small else run.arguments
        code = self._code(attempt.contract, falsifier, of_contract=attempt.small)
        return tasks.execute(code, run, Conditions(device=attempt.device, directory=str(directory), execute=arguments))

    def execution(self, attempt: Attempt, falsifier: Falsifier, run: Run) -> Attempt:
        """Return the attempt that executes the run of a falsifier."""
        subject = self.subject(attempt.contract, falsifier, of_contract=attempt.small)
        return replace(attempt, falsifier=None, run=run, subject=subject)

    def cached_tasks(self, attempt: Attempt, claim: Falsifier) -> list[Body]:
        """Return the tasks that decide the result of a claim on its subject: its own, and the run that it reads."""
        run = engine_of(claim).run_of(attempt.contract, claim)
        if run is None:
            return [self.attack(attempt, claim, self.conditions(attempt))]
        executing = self.execution(attempt, claim, run)
        read = self.attack(attempt, claim, Conditions(device=attempt.device))
        return [read, self.execute(executing, claim, run, Path())]

    def identity(self, attempt: Attempt, claim: Falsifier, bodies: list[Body]) -> list[object]:
        """Return the JSON data that the cache key of an attempt is computed from."""
        conditions = self.conditions(attempt)
        return tasks.identity(attempt.contract, claim, bodies, conditions, spawn=self.options.spawn)

    def _code(self, contract: Contract, falsifier: Falsifier, *, of_contract: bool) -> Code:
        """Return the resolved subject of a falsifier."""
        subject = self.subject(contract, falsifier, of_contract=of_contract)
        return self._codes.setdefault(subject, Code(self.project, subject, self._imports))
