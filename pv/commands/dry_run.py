"""Build every task of a validation without running it."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from pv.commands.plan import Plan, Request, plan_validation, project_of
from pv.commands.validation.attempts import Attempt, Options, Tasks
from pv.contract.finding import Finding, Severity
from pv.contract.model import Contract, Falsifier, Run
from pv.engines.engine import Conditions
from pv.engines.registry import engine_of
from pv.errors import PvError
from pv.linting import MUTANT_STALE, RUNNABLE
from pv.results.dry_run import Built, DryRun
from pv.results.verdict import parse_shard
from pv.source.project import Project
from pv.workers import tasks
from pv.workers.tasks import Body

DIRECTORY = Path("run")
"""Placeholder for the directory of a run's record; a real task gets its directory when it is submitted."""


def dry_run(
    paths: Sequence[str | Path] = (),
    *,
    project: Project | None = None,
    only: Sequence[str] = (),
    contracts: Sequence[str] = (),
    devices: Sequence[str] = (),
    subjects: Mapping[str, str] | None = None,
    mutants: bool = True,
    shard: str = "",
) -> DryRun:
    """Build every task that `pv.validate` would run for these arguments, without running it.

    The devices need not exist. Raise UsageError and ProjectError like `pv.validate`.
    """
    part = parse_shard(shard) if shard else None
    request = Request(
        paths=paths,
        only=only,
        contracts=contracts,
        devices=tuple(devices) or None,
        subjects=subjects or {},
        mutants=mutants,
        shard=part,
    )
    plan = plan_validation(project or project_of(paths), request)
    tasks = Tasks(plan.project, plan.subjects, Options(jobs=1))
    runnable = [c for c in plan.contracts if c.strict and plan.runnable(c)]
    return DryRun(
        findings=tuple(_preventing(plan)),
        devices=tuple(dict.fromkeys(devices)) or ("cpu",),
        tasks={c.id: tuple(_Building(plan, tasks, c).built()) for c in runnable},
        automatic={c.id: sum(not claim.kills for claim in _on_mutants(plan, c)) for c in runnable},
    )


def _preventing(plan: Plan) -> Iterator[Finding]:
    """Yield the findings that keep a task from being built; a stale mutant matters only if mutants are tried."""
    on_cpu = any(_on_mutants(plan, contract) for contract in plan.contracts)
    harmless = RUNNABLE - MUTANT_STALE if on_cpu else RUNNABLE
    return (f for f in plan.findings if f.severity is not Severity.NOTICE and f.code not in harmless)


def _claims(plan: Plan, contract: Contract) -> list[Falsifier]:
    selection = plan.selections[contract.id]
    return [claim for claim in contract.claims if selection.runs(claim) and engine_of(claim).bound]


def _on_mutants(plan: Plan, contract: Contract) -> list[Falsifier]:
    selection = plan.selections[contract.id]
    on_cpu = selection.mutants and "cpu" in selection.live
    return [claim for claim in _claims(plan, contract) if on_cpu and "cpu" in claim.devices]


class _Building:
    """Builds the tasks of one contract as a validation does."""

    def __init__(self, plan: Plan, tasks: Tasks, contract: Contract) -> None:
        self.plan, self.tasks, self.contract = plan, tasks, contract

    def built(self) -> Iterator[Built]:
        """Yield every task: reference runs and claims on each device, then declared mutants on the CPU."""
        executed = set[tuple[str, str]]()
        for claim in _claims(self.plan, self.contract):
            for device in self.plan.selections[self.contract.id].live:
                if device in claim.devices:
                    yield from self._on(device, claim, executed)
        for claim in _on_mutants(self.plan, self.contract):
            for id_ in claim.kills:
                yield self._on_mutant(claim, id_)

    def _on(self, device: str, claim: Falsifier, executed: set[tuple[str, str]]) -> Iterator[Built]:
        attempt = Attempt(contract=self.contract, falsifier=claim, device=device)
        run, conditions = engine_of(claim).run_of(self.contract, claim), self.tasks.conditions(attempt)
        if run is not None:
            conditions = Conditions(device=device, directory=str(DIRECTORY))
            if (run.name, device) not in executed:
                executed.add((run.name, device))
                yield self._execution(attempt, claim, run)
        problem = _problem(lambda: self.tasks.attack(attempt, claim, conditions))
        yield Built(device=device, kind=engine_of(claim).name, claim=claim.id, problem=problem)

    def _execution(self, attempt: Attempt, claim: Falsifier, run: Run) -> Built:
        problem = _problem(lambda: self.tasks.execute(attempt, claim, run, DIRECTORY))
        return Built(device=attempt.device, kind="reference run", claim=run.name, problem=problem)

    def _on_mutant(self, claim: Falsifier, id_: str) -> Built:
        attempt = Attempt(contract=self.contract, falsifier=claim, device="cpu", mutant=self.contract.mutant(id_))
        run, conditions = engine_of(claim).run_of(self.contract, claim), self.tasks.conditions(attempt)
        if run is not None:
            conditions = Conditions(
                device="cpu", mutant=attempt.mutant, directory=str(DIRECTORY), execute=run.small or {}
            )
        problem = _problem(lambda: self.tasks.attack(attempt, claim, conditions))
        return Built(device="cpu", kind=engine_of(claim).name, claim=claim.id, mutant=id_, problem=problem)


def _problem(build: Callable[[], Body]) -> str:
    """Build a task and convert it to JSON and back, as on its way to a worker; return the error, or "" if it works."""
    try:
        tasks.payload_of(Body.from_json(json.loads(json.dumps(build().as_json()))))
    except (PvError, LookupError, TypeError, ValueError) as error:
        return f"cannot be built: {error}"
    return ""
