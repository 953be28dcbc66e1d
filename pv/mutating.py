"""Measures how many of the faults that can be planted by rule the falsifiers of a contract notice."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from pv.campaign import Progress
from pv.errors import UsageError
from pv.linting import RUNNABLE, SCORE_STALE
from pv.model import Contract, Falsifier, Finding, Severity
from pv.mutation import report, score
from pv.mutation.campaign import Hunt
from pv.mutation.result import Plan, Result
from pv.project import Project
from pv.request import check, project_of


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
    on_progress: Callable[[Progress], None] | None = None,
) -> tuple[Result, ...]:
    """What became of the automatic mutants of each contract, or of what one falsifier reaches.

    `names` are patterns of contract or falsifier ids (default: all contracts). A contract is judged by all its bound
    falsifiers, where falsifiers are named by these alone. `sample` draws so many mutants by `seed` instead of all.
    `widely` also mutates what the subjects import; `modules` are patterns of those to mutate alone. `record` keeps the
    score of each contract under the project's evidence folder, unless the result has problems other than a low score:
    then it is `unrecorded`. What a falsifier noticed on an earlier run is recalled while the falsifier and all code and
    files that it and the subject consist of are unchanged; `fresh` asks again.

    Raises UsageError for a request that cannot be met or a contract that lint refuses, WorkerLost when no worker can
    be started.
    """
    project = project or project_of(paths)
    contracts, findings = check(paths, project=project)
    asked = _asked([c for c in contracts if c.strict], names)
    if sample is not None and sample < 1:
        raise UsageError(f"sample is {sample}; it must be at least 1")
    for contract, falsifiers in asked:
        _refuse(contract, falsifiers, findings, part=record and (widely or bool(modules)), record=record)
    plan = Plan(
        jobs=jobs or os.cpu_count() or 1,
        sample=sample,
        seed=seed,
        widely=widely,
        modules=tuple(modules),
        fresh=fresh,
        spawn=spawn,
        on_progress=_tell(on_progress),
    )
    results = []
    for contract, falsifiers in asked:
        result = Hunt(project, contract, falsifiers, plan).run()
        results.append(_recorded(project, result, seed) if record else result)
    return tuple(results)


def _tell(on_progress: Callable[[Progress], None] | None) -> Callable[[int, int, tuple[str, ...]], None] | None:
    if on_progress is None:
        return None
    tell = on_progress
    return lambda done, total, running: tell(Progress(done=done, total=total, running=running))


def _asked(contracts: Sequence[Contract], names: Sequence[str]) -> list[tuple[Contract, tuple[Falsifier, ...]]]:
    """The contracts that are meant, each with the falsifiers that judge."""
    asked = []
    for contract in contracts:
        if not names or _matches(contract.id, names):
            asked.append((contract, contract.claims))
            continue
        judges = tuple(f for f in contract.claims if _matches(f.id, names))
        asked += [(contract, judges)] if judges else []
    if not asked:
        known = ", ".join(c.id for c in contracts) or "none"
        raise UsageError(f"nothing matches {', '.join(names) or 'your request'}; the contracts are {known}")
    return asked


def _matches(id_: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(id_, pattern) for pattern in patterns)


def _refuse(
    contract: Contract, falsifiers: Sequence[Falsifier], findings: Sequence[Finding], *, part: bool, record: bool
) -> None:
    """Refuses what would measure something else than it says."""
    bad = [f for f in findings if f.where.path == contract.where.path and f.severity is not Severity.NOTICE]
    stopping = [f for f in bad if f.code not in RUNNABLE - SCORE_STALE]
    if stopping:
        raise UsageError(f"{contract.id} cannot be run: {stopping[0]}")
    if part or (record and len(falsifiers) < len(contract.claims)):
        raise UsageError(
            "a score is recorded for a contract as it stands: leave out --record, or --wide, --module and falsifiers"
        )


def _recorded(project: Project, result: Result, seed: int) -> Result:
    """The result, with its score kept, or marked as one whose problems forbid that."""
    if report.objections(result):
        return replace(result, unrecorded=True)
    score.write(project, result, seed)
    return result
