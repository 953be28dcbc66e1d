"""Makes the tasks of a validation."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pv.commands.validation.attempt import Attempt, Options
from pv.contract.claims import Falsifier, Run
from pv.contract.model import Contract
from pv.contract.names import Target
from pv.engines.code import Code
from pv.engines.engine import Conditions
from pv.engines.registry import engine_of
from pv.source.imports import Imports
from pv.source.project import Project
from pv.workers import tasks
from pv.workers.tasks import Body


class Tasks:
    """The tasks of one validation. `subjects` gives contracts, by id, another subject than their own."""

    def __init__(self, project: Project, subjects: Mapping[str, Target], options: Options) -> None:
        self.project, self.subjects, self.options = project, subjects, options
        self._codes: dict[Target, Code] = {}
        self._imports = Imports(project)

    def subject(self, contract: Contract, claim: Falsifier | Run, *, own: bool = False) -> Target:
        """Return the code that a falsifier attacks. Mutants are faults of the contract's `own` subject."""
        other = None if own else self.subjects.get(contract.id)
        return other or contract.subject_of(claim)

    def attack(self, attempt: Attempt, falsifier: Falsifier, conditions: Conditions) -> Body:
        """Return the task of a falsifier on its subject or on a mutant.

        Where no mutant is declared, automatic ones are drawn from the statements that ran, and kept from writing to
        the project.
        """
        code = self._code(attempt.contract, falsifier, own=attempt.mutant is not None and bool(falsifier.kills))
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
        code = self._code(attempt.contract, falsifier, own=attempt.small)
        return tasks.execute(code, run, Conditions(device=attempt.device, directory=str(directory), execute=arguments))

    def execution(self, attempt: Attempt, falsifier: Falsifier, run: Run) -> Attempt:
        """Return the attempt that executes the run that a falsifier reads."""
        subject = self.subject(attempt.contract, falsifier, own=attempt.small)
        return replace(attempt, falsifier=None, run=run, subject=subject)

    def cached_tasks(self, attempt: Attempt, claim: Falsifier) -> list[Body]:
        """Return the tasks whose results make a result on the subject: its own, and that of the run that it reads."""
        run = engine_of(claim).run_of(attempt.contract, claim)
        if run is None:
            return [self.attack(attempt, claim, self.conditions(attempt))]
        executing = self.execution(attempt, claim, run)
        read = self.attack(attempt, claim, Conditions(device=attempt.device))
        return [read, self.execute(executing, claim, run, Path())]

    def identity(self, attempt: Attempt, claim: Falsifier, bodies: list[Body]) -> list[object]:
        """Return what tells the result of an attempt from others, as JSON data."""
        conditions = self.conditions(attempt)
        return tasks.identity(attempt.contract, claim, bodies, conditions, spawn=self.options.spawn)

    def _code(self, contract: Contract, falsifier: Falsifier, *, own: bool) -> Code:
        """Return the resolved subject of a falsifier."""
        subject = self.subject(contract, falsifier, own=own)
        return self._codes.setdefault(subject, Code(self.project, subject, self._imports))
