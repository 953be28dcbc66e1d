"""Measure how many generated mutants the falsifiers of a contract kill (`pv mutate`)."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pv.commands.naming import contract_id
from pv.commands.plan import check, matches, project_of
from pv.contract.finding import Finding, Severity
from pv.contract.model import Contract, Falsifier
from pv.errors import UsageError
from pv.execution.consumers import OnProgress
from pv.execution.mutants import MutantTrials
from pv.linting import RUNNABLE, SCORE_STALE
from pv.mutation import scope, score, summary
from pv.mutation.judge import MutationResult
from pv.results import store
from pv.source.project import Project
from pv.workers.pool import default_jobs, refuse_optimized


def mutate(
    names: Sequence[str] = (),
    *,
    paths: Sequence[str | Path] = (),
    project: Project | None = None,
    jobs: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    widely: bool = False,
    modules: Sequence[str] = (),
    record: bool = False,
    fresh: bool = False,
    spawn: bool = False,
    on_progress: OnProgress | None = None,
) -> tuple[MutationResult, ...]:
    """Generate mutants of the code under contract, and return which mutants the falsifiers kill.

    Args:
        names: Contract files, or glob patterns of contract or falsifier ids (default: all contracts). The bound
            falsifiers of a contract and of its judges are tried on its mutants; if falsifiers are named, only these.
        paths: Contract files and folders to read (default: the contracts of the project).
        project: As for `pv.validate`.
        jobs: As for `pv.validate`.
        sample: Number of mutants to draw (default: all mutants).
        seed: Seed of the sample.
        widely: Also mutate the modules that the subjects import.
        modules: Glob patterns of the modules to mutate (default: all modules in scope).
        record: Write the score of every contract to the evidence folder. If a result has a problem other than a low
            score, its score is not written, and the result is marked `unrecorded`.
        fresh: Ignore cached kills. By default, a kill is reused until the falsifier, the subject, or a file that they
            read changes.
        spawn: As for `pv.validate`.
        on_progress: Called with the progress.

    Returns:
        One result for every requested contract. A contract that is scored as part of another contract is omitted,
        unless it is named.

    Raises:
        UsageError: The request is invalid, lint refuses a contract, or the evidence folder cannot be written.
        WorkerLost: No worker can be started.
    """
    refuse_optimized()
    project = project or project_of(paths)
    requested, findings = _requested(project, names, paths)
    if sample is not None and sample < 1:
        raise UsageError(f"invalid value {sample} for 'sample': expected a positive integer")
    if record:
        store.refuse_unwritable(project)
    for contract, falsifiers in requested:
        _refuse_invalid(contract, findings)
        if record and (widely or modules or len(falsifiers) < len(scope.judging_claims(contract))):
            raise UsageError(
                "--record needs all falsifiers and the declared scope: "
                "omit --record, or --wide, --module and falsifiers"
            )
    results = []
    for contract, falsifiers in requested:
        holders = scope.holders(project, contract)
        if holders:
            elsewhere = f"{contract.id} has no score of its own; its modules are scored in {', '.join(holders)}"
            result = MutationResult(
                contract=contract, falsifiers=(), total=0, judged=(), restricted=True, elsewhere=elsewhere
            )
        else:
            trials = MutantTrials(
                project,
                contract,
                falsifiers,
                jobs=jobs or default_jobs(),
                sample=sample,
                seed=seed,
                widely=widely,
                modules=modules,
                fresh=fresh,
                spawn=spawn,
            )
            result = trials.run(on_progress)
            if record and summary.objections(result):
                result = replace(result, unrecorded=True)
            elif record:
                score.write(project, result, seed)
        results.append(result)
    return tuple(results)


def _requested(
    project: Project, names: Sequence[str], paths: Sequence[str | Path]
) -> tuple[list[tuple[Contract, tuple[Falsifier, ...]]], tuple[Finding, ...]]:
    """Return the requested contracts with the falsifiers that judge their mutants, and all lint findings.

    A contract that is scored as part of another contract is omitted, unless it is named.
    """
    files = [name for name in names if os.path.lexists(name)]
    names = [contract_id(name) for name in names]
    contracts, findings = check([*(paths or project.contracts), *files] if files else paths, project=project)
    contracts = tuple(contract for contract in contracts if contract.strict)
    refusals = "\n".join(str(finding) for finding in findings if finding.severity is Severity.REFUSAL)
    if refusals and not names:
        raise UsageError(refusals)
    requested = []
    for contract in contracts:
        falsifiers = scope.judging_claims(contract)
        if matches(contract.id, names):
            requested.append((contract, falsifiers))
        elif not scope.holders(project, contract):
            if names:
                falsifiers = tuple(f for f in falsifiers if matches(f.id, names) and _is_scored(project, contract, f))
            if falsifiers:
                requested.append((contract, falsifiers))
    if not requested:
        ids = ", ".join(contract.id for contract in contracts) or "none"
        message = f"no contract or falsifier matches {', '.join(names) or 'the request'} (choose from {ids})"
        raise UsageError(f"{message}\n{refusals}".rstrip())
    return requested, findings


def _is_scored(project: Project, contract: Contract, falsifier: Falsifier) -> bool:
    """Return whether a falsifier belongs to `contract`, or to a judge that has no score of its own."""
    owner = scope.owners(contract)[falsifier.id]
    return owner is contract or bool(scope.holders(project, owner))


def _refuse_invalid(contract: Contract, findings: Sequence[Finding]) -> None:
    """Raise UsageError if a contract, or one of its judges, has a lint finding with which it cannot be run."""
    for judging_contract in (contract, *contract.judges):
        # An error that only prevents a mutation score matters for the scored contract, and not for its judges.
        allowed = RUNNABLE - SCORE_STALE if judging_contract is contract else RUNNABLE
        for finding in findings:
            is_blocking = finding.severity is not Severity.NOTICE and finding.code not in allowed
            if is_blocking and finding.location.path == judging_contract.location.path:
                raise UsageError(f"{judging_contract.id} cannot be run: {finding}")
