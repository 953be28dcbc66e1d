"""Build every task of a validation without running the tasks (`pv validate --dry-run`)."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from pv.commands.plan import Plan, Request, plan_validation, project_of
from pv.contract.finding import Severity
from pv.contract.model import Contract, Falsifier
from pv.engines.registry import engine_of
from pv.errors import PvError
from pv.execution.attempt import Attempt, Attempts
from pv.linting import MUTANT_STALE, RUNNABLE
from pv.results.dry_run import DryRun, PlannedTask
from pv.results.verdict import parse_shard
from pv.source.project import Project
from pv.workers import tasks
from pv.workers.tasks import Body


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
    """Build every task that `pv.validate` would run with the same arguments, without running the tasks.

    Tasks on generated mutants are not built: the mutants depend on the statements that the claims reach. The devices
    need not exist. See `pv.validate` for the arguments and errors.
    """
    request = Request(
        paths=paths,
        only=only,
        contracts=contracts,
        devices=tuple(devices) or None,
        subjects=subjects or {},
        mutants=mutants,
        shard=parse_shard(shard) if shard else None,
    )
    plan = plan_validation(project or project_of(paths), request)
    attempts = Attempts(plan.project, plan.subjects)
    runnable = [c for c in plan.contracts if c.strict and plan.runnable(c)]
    # A stale mutant prevents the build of a task only if mutants are tried.
    tries_mutants = any(_claims_on_mutants(plan, contract) for contract in runnable)
    allowed = RUNNABLE - MUTANT_STALE if tries_mutants else RUNNABLE
    return DryRun(
        findings=tuple(f for f in plan.findings if f.severity is not Severity.NOTICE and f.code not in allowed),
        devices=tuple(dict.fromkeys(devices)) or ("cpu",),
        tasks={c.id: tuple(_planned_tasks(plan, attempts, c)) for c in runnable},
        on_generated_mutants={c.id: sum(not claim.kills for claim in _claims_on_mutants(plan, c)) for c in runnable},
    )


def _claims(plan: Plan, contract: Contract) -> list[Falsifier]:
    """Return the selected claims of a contract."""
    selection = plan.selections[contract.id]
    return [claim for claim in contract.claims if selection.runs(claim)]


def _claims_on_mutants(plan: Plan, contract: Contract) -> list[Falsifier]:
    """Return the selected claims that are tried on mutants; mutants are only tried on the CPU."""
    selection = plan.selections[contract.id]
    on_cpu = selection.mutants and "cpu" in selection.active_devices
    return [claim for claim in _claims(plan, contract) if on_cpu and "cpu" in claim.devices]


def _planned_tasks(plan: Plan, attempts: Attempts, contract: Contract) -> Iterator[PlannedTask]:
    """Yield every task of a contract: reference runs and claims on all devices, then declared mutants on the CPU."""
    executed = set[tuple[str, str]]()
    for claim in _claims(plan, contract):
        for device in (device for device in plan.selections[contract.id].active_devices if device in claim.devices):
            run = engine_of(claim).run_of(contract, claim)
            if run is not None and (run.name, device) not in executed:
                executed.add((run.name, device))
                problem = _build_problem(attempts.run, contract, claim, device)
                yield PlannedTask(device=device, kind="reference run", claim=run.name, problem=problem)
            problem = _build_problem(attempts.clean, contract, claim, device)
            yield PlannedTask(device=device, kind=engine_of(claim).name, claim=claim.id, problem=problem)
    for claim in _claims_on_mutants(plan, contract):
        for mutant in map(contract.mutant, claim.kills):
            problem = _build_problem(attempts.mutated, contract, claim, mutant)
            kind = engine_of(claim).name
            yield PlannedTask(device="cpu", kind=kind, claim=claim.id, mutant=mutant.id, problem=problem)


def _build_problem(build: Callable[..., Attempt | None], *arguments: object) -> str:
    """Build a task and convert it to JSON and back, as a worker receives it. Return the error; "" if there is none."""
    try:
        attempt = build(*arguments)
        assert attempt is not None
        tasks.payload_of(Body.from_json(json.loads(json.dumps(attempt.body.as_json()))))
    except (PvError, LookupError, TypeError, ValueError) as error:
        return f"cannot be built: {error}"
    return ""
