"""Measure how many generated mutants the falsifiers of a contract kill."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
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
    """Generate mutants of the code under contract, and return which of them the falsifiers kill.

    Args:
        names: Contract files, or glob patterns of contract or falsifier ids (default: all contracts). A contract is
            judged by its own and its judges' bound falsifiers; if falsifiers are named, only by these.
        paths: Contract files and folders to read (default: the contracts of the project).
        project: As for `pv.validate`.
        jobs: As for `pv.validate`.
        sample: Number of mutants to draw (default: all mutants).
        seed: Seed of the sample.
        widely: Also mutate the modules that the subjects import.
        modules: Glob patterns of the only modules to mutate.
        record: Write the score of every contract to the evidence folder. A result with a problem other than a low score
            is not written, and marked `unrecorded`.
        fresh: Ignore cached kills, which are otherwise reused until the falsifier, the subject or a file they read
            changes.
        spawn: As for `pv.validate`.
        on_progress: Called with the progress.

    Returns:
        One result for every contract.

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
        _refuse(contract, falsifiers, findings, part=record and (widely or bool(modules)), record=record)
    trials_of = partial(
        MutantTrials,
        project,
        jobs=jobs or default_jobs(),
        sample=sample,
        seed=seed,
        widely=widely,
        modules=modules,
        fresh=fresh,
        spawn=spawn,
    )
    results = []
    for contract, falsifiers in requested:
        if holders := scope.holders(project, contract):
            elsewhere = f"{contract.id} has no score of its own; its modules are scored in {', '.join(holders)}"
            results.append(
                MutationResult(
                    contract=contract, falsifiers=(), total=0, judged=(), restricted=True, elsewhere=elsewhere
                )
            )
            continue
        result = trials_of(contract, falsifiers).run(on_progress)
        if record and summary.objections(result):
            result = replace(result, unrecorded=True)
        elif record:
            score.write(project, result, seed)
        results.append(result)
    return tuple(results)


def _requested(
    project: Project, names: Sequence[str], paths: Sequence[str | Path]
) -> tuple[list[tuple[Contract, tuple[Falsifier, ...]]], tuple[Finding, ...]]:
    """Return the requested contracts with the falsifiers that judge their mutants, and all lint findings."""
    files = [name for name in names if os.path.lexists(name)]
    names = [contract_id(name) for name in names]
    contracts, findings = check([*(paths or project.contracts), *files] if files else paths, project=project)
    refused = "\n".join(str(f) for f in findings if f.severity is Severity.REFUSAL)
    if refused and not names:
        raise UsageError(refused)
    return _select(project, [c for c in contracts if c.strict], names, refused), findings


def _select(
    project: Project, contracts: Sequence[Contract], names: Sequence[str], refused: str
) -> list[tuple[Contract, tuple[Falsifier, ...]]]:
    """Return the requested contracts with the falsifiers that judge their mutants.

    A contract that is scored as part of another contract is left out, unless it is named.
    """
    requested = []
    for contract in contracts:
        if names and matches(contract.id, names):
            requested.append((contract, scope.judging(contract)))
        elif not scope.holders(project, contract):
            judges = tuple(f for f in scope.judging(contract) if not names or _judges(project, contract, f, names))
            requested += [(contract, judges)] if judges else []
    if not requested:
        ids = ", ".join(c.id for c in contracts) or "none"
        message = f"no contract or falsifier matches {', '.join(names) or 'the request'} (choose from {ids})"
        raise UsageError(f"{message}\n{refused}".rstrip())
    return requested


def _judges(project: Project, contract: Contract, falsifier: Falsifier, names: Sequence[str]) -> bool:
    """Return whether a falsifier is named in the request and judges mutants that are scored in this contract."""
    # Mutants are scored in the falsifier's own contract, or in the contracts whose scope includes it.
    owner = scope.owners(contract)[falsifier.id]
    return matches(falsifier.id, names) and (owner is contract or bool(scope.holders(project, owner)))


def _refuse(
    contract: Contract, falsifiers: Sequence[Falsifier], findings: Sequence[Finding], *, part: bool, record: bool
) -> None:
    """Raise UsageError for a contract that lint refuses, and for a partial score that would be recorded."""
    bad = [f for f in findings if f.severity is not Severity.NOTICE]
    for judged in (contract, *contract.judges):
        # A finding that only spoils the score blocks the scored contract, but not the contracts that judge its mutants.
        allowed = RUNNABLE - SCORE_STALE if judged is contract else RUNNABLE
        blocking = [f for f in bad if f.location.path == judged.location.path and f.code not in allowed]
        if blocking:
            raise UsageError(f"{judged.id} cannot be run: {blocking[0]}")
    if part or (record and len(falsifiers) < len(scope.judging(contract))):
        raise UsageError(
            "--record needs all falsifiers and the declared scope: omit --record, or --wide, --module and falsifiers"
        )
