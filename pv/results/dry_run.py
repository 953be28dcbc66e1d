"""The result of a dry run: the tasks of a validation, built but not run."""

from collections.abc import Mapping
from dataclasses import dataclass

from pv.contract.finding import Finding, Severity
from pv.errors import ExitCode


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    """One task that a validation would run.

    Attributes:
        device: The device to run on.
        kind: The engine of the claim, or "reference run".
        claim: The id of the claim, or the name of the run.
        mutant: The id of the mutant; "" for the clean code.
        problem: The reason why the task cannot be built; "" if it was built.
    """

    device: str
    kind: str
    claim: str
    mutant: str = ""
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.claim} on {self.device}{f' / {self.mutant}' if self.mutant else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """The tasks that a validation would run.

    Attributes:
        findings: The lint findings; tasks of a contract with a finding other than a notice cannot be built.
        devices: The requested devices.
        tasks: The tasks by id of the contract.
        on_generated_mutants: The number of claims judged by generated mutants, by id of the contract.
    """

    findings: tuple[Finding, ...]
    devices: tuple[str, ...]
    tasks: Mapping[str, tuple[PlannedTask, ...]]
    on_generated_mutants: Mapping[str, int]

    @property
    def problems(self) -> tuple[str, ...]:
        """Return the findings that are not notices, and the tasks that could not be built, as text."""
        findings = [f"{f.severity.value}: {f}" for f in self.findings if f.severity is not Severity.NOTICE]
        all_tasks = (task for tasks in self.tasks.values() for task in tasks)
        return (*findings, *(f"error: {task}: {task.problem}" for task in all_tasks if task.problem))

    @property
    def exit_code(self) -> ExitCode:
        """Return the code of the findings and problems; a request without a task is undecided."""
        return ExitCode.worst(
            refused=any(finding.severity is Severity.REFUSAL for finding in self.findings),
            failed=bool(self.problems),
            undecided=not any(self.tasks.values()),
        )
