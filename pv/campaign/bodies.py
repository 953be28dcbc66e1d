"""What a worker is told for a job of a validation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pv import proofs, tasks
from pv.campaign.job import Job, Options
from pv.model import Contract, Falsifier, Harness, Run, Target
from pv.project import Project
from pv.tasks import Code


class Bodies:
    """The bodies of the tasks of one validation. `subjects` gives contracts, by id, another subject than their own."""

    def __init__(self, project: Project, subjects: Mapping[str, Target], options: Options) -> None:
        self.project, self.subjects, self.options = project, subjects, options
        self._codes: dict[Target, Code] = {}

    def subject(self, contract: Contract, falsifier: Falsifier) -> Target:
        """What a falsifier is tried on."""
        return self.subjects.get(contract.id) or contract.subject_of(falsifier)

    def falsify(self, job: Job, falsifier: Falsifier) -> dict[str, Any]:
        body = tasks.falsify(
            self._code(job.contract, falsifier, own=job.mutant is not None and bool(falsifier.kills)),
            job.contract,
            falsifier,
            job.device,
            examples=self.options.examples or falsifier.examples,
            seed=self.options.seed,
            mutant=job.mutant,
            replay=self.options.replay,
        )
        return _watched(body, job, falsifier)

    def prove(self, job: Job, harness: Harness) -> dict[str, Any]:
        """The search of a harness, or the replay of what its first search found."""
        code, replay = self._code(job.contract, harness, own=job.mutant is not None), proofs.point(self.options.replay)
        if job.first is not None and job.first.counterexample is not None:
            replay = job.first.counterexample.arguments
        return _watched(tasks.prove(code, harness, mutant=job.mutant, replay=replay), job, harness)

    def execute(self, job: Job, falsifier: Falsifier, run: Run, directory: Path) -> dict[str, Any]:
        """The run that a falsifier reads."""
        arguments = (run.small or {}) if job.small else run.arguments
        code = self._code(job.contract, falsifier, own=job.small)
        return tasks.execute(code, run, job.device, directory, arguments=arguments)

    def judge(self, job: Job, falsifier: Falsifier, directory: Path) -> dict[str, Any]:
        """A falsifier's look at a run that has ended."""
        return tasks.predicate(self._code(job.contract, falsifier), falsifier, job.device, directory)

    def execute_and_judge(self, job: Job, falsifier: Falsifier, run: Run, directory: Path) -> dict[str, Any]:
        """A run on a mutant, at its small arguments, and the falsifier's look at it, in one worker."""
        code = self._code(job.contract, falsifier, own=bool(falsifier.kills))
        body = tasks.execute(code, run, "cpu", directory, arguments=run.small or {}, mutant=job.mutant)
        return _watched(body, job, falsifier) | {"test": code.test(falsifier)}

    def _code(self, contract: Contract, falsifier: Falsifier, *, own: bool = False) -> Code:
        """The code that a falsifier is tried on. Mutants are faults of the contract's own subject."""
        subject = contract.subject_of(falsifier) if own else self.subject(contract, falsifier)
        return self._codes.setdefault(subject, Code(self.project, subject))


def _watched(body: dict[str, Any], job: Job, falsifier: Falsifier) -> dict[str, Any]:
    """The body; where no mutant is declared, automatic ones are drawn from the statements that run on the code itself.

    A mutant that nobody wrote is kept from what it never should touch.
    """
    if not falsifier.kills:
        body["plan"] |= {"statements": job.mutant is None, "fenced": job.mutant is not None}
    return body
