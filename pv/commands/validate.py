"""Validate contracts: plan, run trials, read recorded evidence, decide verdicts, and return a report."""

import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pv.commands import counterexamples
from pv.commands.declarations import old_names_note, read_declarations
from pv.commands.plan import DEVICES, Plan, Request, plan_validation, project_of
from pv.contract.finding import Finding
from pv.contract.model import Contract, Target
from pv.contract.wording import FEW, listed
from pv.engines.registry import engine_of
from pv.engines.replay import read as read_example
from pv.errors import PvError
from pv.execution.attempt import Attempts
from pv.execution.consumers import EvidenceWriter, Journal, OnProgress, Progress, stop_at_failure
from pv.execution.executor import Executor
from pv.execution.validation import Validation, supports
from pv.linting import MUTANT_STALE
from pv.mutation import score
from pv.results import requirements, store, worktree
from pv.results.evidence import PROOFS, Evidence, Recorded
from pv.results.reuse.cache import ResultCache
from pv.results.verdict import ContractVerdict, Report, Status, decide, parse_shard
from pv.source.project import Project, is_shipped
from pv.source.resolve import Unbound, source, target_file
from pv.workers import device, tasks
from pv.workers.device import Probe
from pv.workers.pool import Pool, PoolCache, default_jobs, refuse_optimized

_WORST_FIRST = [Status.FAIL, Status.UNDECIDED, Status.PASS]


class Interrupted(PvError):
    """The validation was stopped by Ctrl-C; `report` contains the results so far."""

    def __init__(self, report: Report) -> None:
        super().__init__("interrupted")
        self.report = report


def validate(
    paths: Sequence[str | Path] = (),
    *,
    project: Project | None = None,
    only: Sequence[str] = (),
    contracts: Sequence[str] = (),
    devices: Sequence[str] | None = None,
    require: Iterable[str] = (),
    subjects: Mapping[str, str] | None = None,
    jobs: int | None = None,
    fail_fast: bool = False,
    examples: int | None = None,
    seed: int = 0,
    replay: str = "",
    mutants: bool = True,
    shard: str = "",
    record: bool = False,
    reuse: bool = True,
    spawn: bool = False,
    probe: Probe | None = None,
    on_progress: OnProgress | None = None,
) -> Report:
    """Try the claims of contracts, and return a report of the results and the effort.

    Args:
        paths: Contract files and folders, or ids (default: all contracts of the project).
        project: The project of the contracts (default: the project of the first path if it is declared there, else the
            project of the working directory).
        only: Glob patterns over the ids of claims.
        contracts: Glob patterns over the ids of contracts.
        devices: Devices to run on (default: the CPU; results of other devices are read from the evidence folder).
        require: Devices whose recorded results must also hold.
        subjects: The `module` or `module:attribute` to test instead of a contract's own subject, by contract id.
        jobs: Number of workers that compute at a time (default: cores + 1).
        fail_fast: Stop at the first failure.
        examples: Number of examples per falsifier (default: from the contract).
        seed: Seed of the examples.
        replay: One example to run instead of a search: "VERSION:BLOB" as a report prints it, the arguments as a JSON
            object, or "@FILE" if a file contains one of these.
        mutants: After a falsifier has held, try it on its mutants.
        shard: "K/N" to run only part K of N; `pv report` merges the parts.
        record: Write proofs and results of other devices to the evidence folder, as soon as they are measured.
        reuse: Reuse results of earlier validations whose dependencies have not changed, and store new results. Ignored
            with `record` or `replay`.
        spawn: Start every worker in a new interpreter.
        probe: Called with the name of a device; returns its description, None if the device is absent.
        on_progress: Called with the progress.

    Returns:
        The report, worst contract first.

    Raises:
        UsageError: The request is invalid.
        ProjectError: The table [tool.pv] cannot be used.
        WorkerLost: No worker can be started.
        Interrupted: A KeyboardInterrupt stopped the validation; its `report` contains the results so far.
    """
    refuse_optimized()
    request = Request(
        paths=paths,
        only=only,
        contracts=contracts,
        devices=devices,
        require=frozenset(require),
        subjects=subjects or {},
        jobs=jobs,
        fail_fast=fail_fast,
        examples=examples,
        seed=seed,
        replay=read_example(replay),
        mutants=mutants,
        shard=parse_shard(shard) if shard else None,
        record=record,
        reuse=reuse and not (record or replay),
        spawn=spawn,
    )
    return run_validation(project or project_of(paths), request, replay, probe=probe, on_progress=on_progress)


def run_validation(
    project: Project,
    request: Request,
    replay: str = "",
    *,
    probe: Probe | None = None,
    on_progress: OnProgress | None = None,
    pools: PoolCache | None = None,
) -> Report:
    """Plan and run a validation, and return its report.

    Args:
        project: The project of the contracts.
        request: The request.
        replay: The example to replay as the user wrote it, for the command in the report.
        probe: As for `validate`.
        on_progress: As for `validate`.
        pools: Workers that are shared with other validations (default: new workers).

    Raises:
        Interrupted: As for `validate`.
    """
    started = time.monotonic()
    with PoolCache(request.jobs or default_jobs(), spawn=request.spawn) as own_pools:
        pools = pools or own_pools
        # With --fail-fast the time to the first result matters most, so workers start while lint runs.
        plan = plan_validation(project, request, partial(_preload, pools, project) if request.fail_fast else None)
        if request.record:
            store.refuse_unwritable(project)
        attempts = Attempts(
            project,
            plan.subjects,
            examples=request.examples,
            seed=request.seed,
            replay=request.replay,
            spawn=request.spawn,
        )
        contracts = [c for c in plan.contracts if c.strict and plan.runnable(c) and not request.cannot_try_reason]
        stale = frozenset(f.location for f in plan.findings if f.code in MUTANT_STALE)
        validation = Validation(contracts, plan.selections, attempts, stale)
        validation.unavailable = {device.CPU: request.cannot_try_reason} if request.cannot_try_reason else {}
        notes: tuple[str, ...] = ()
        with closing(ResultCache(project)) if request.reuse else nullcontext() as cache:
            try:
                # If no contract can be tried, no worker is started.
                if contracts:
                    subjects = _imported_subjects(contracts, attempts)
                    with pools.pool(tasks.preload(project, contracts, subjects)) as pool:
                        requested = sorted({name for c in contracts for name in plan.selections[c.id].active_devices})
                        validation.devices, validation.unavailable = device.find(pool, project, requested, probe)
                        _run(validation, pool, cache, request, project, on_progress)
                        notes = (pool.note, *_notes_on_reuse(cache))
            except KeyboardInterrupt:  # report the results so far
                validation.interrupted = True
    report = _report(plan, validation, attempts, notes, started, replace(request, replay=replay))
    if validation.interrupted:
        notes = (*report.notes, requirements.INTERRUPTED)
        raise Interrupted(replace(report, notes=notes, interrupted=True))
    return report


def _imported_subjects(contracts: Sequence[Contract], attempts: Attempts) -> set[Target]:
    """Return the subjects that workers import. If a command runs the subject, no worker imports it."""
    subjects = set()
    for contract in contracts:
        for claim in contract.claims:
            run = engine_of(claim).run_of(contract, claim)
            if run is None or run.callable is not None:
                subjects.add(attempts.subject(contract, claim))
    return subjects


def _run(
    validation: Validation,
    pool: Pool,
    cache: ResultCache | None,
    request: Request,
    project: Project,
    on_progress: OnProgress | None,
) -> None:
    """Run a validation in the workers of a pool, with the consumers that the request needs."""
    journal = Journal(cache, supports) if cache is not None else None
    executor = Executor(pool, journal)
    if on_progress is not None:
        executor.consumers.append(Progress(on_progress))
    if request.record:
        executor.consumers.append(EvidenceWriter(project, validation.devices))
    if request.fail_fast:
        executor.consumers.append(stop_at_failure(executor.cancel))
    executor.run(validation, journal.order if journal is not None and request.fail_fast else None)


def _notes_on_reuse(cache: ResultCache | None) -> tuple[str, ...]:
    """Return notes about the reuse of results; a note may be empty."""
    if cache is None:
        return ()
    note = f"results reused from earlier validations: {cache.hits}" if cache.hits else ""
    if cache.environment_differences:
        differences = listed(cache.environment_differences, FEW)
        note = f"no earlier result is reused, because the environment differs: {differences}"
    return note, cache.problem


def _preload(pools: PoolCache, project: Project, contracts: Sequence[Contract], targets: Mapping[str, Target]) -> None:
    """Start the workers, so that they load their libraries while the contracts are linted."""
    with suppress(PvError, LookupError):  # lint reports names that cannot be resolved
        strict = [contract for contract in contracts if contract.strict]
        subjects = {targets.get(c.id) or c.subject_of(claim) for c in strict for claim in c.claims}
        with pools.pool(tasks.preload(project, strict, subjects)) as pool:
            pool.begin()


def _report(
    plan: Plan, validation: Validation, attempts: Attempts, notes: Sequence[str], started: float, request: Request
) -> Report:
    """Decide the verdicts of all contracts, and return the report."""
    verdicts: list[ContractVerdict] = []
    files: set[str] = set()
    for contract in plan.contracts:
        lint_findings = tuple(f for f in plan.findings if f.location.path == contract.location.path)
        evidence, problems = _with_records(plan, validation, attempts, contract)
        files.update(*(trial.files for trial in evidence.trials.values()))
        verdict = decide(contract, evidence, plan.selections[contract.id], (*lint_findings, *problems))
        verdicts.append(replace(verdict, subject=request.subjects.get(contract.id, ""), repeat=_repeat(request)))
    verdicts.sort(key=lambda v: (_WORST_FIRST.index(v.status), v.contract.id))
    # `known` has all contracts of the project, also contracts that were not selected.
    project_contracts = plan.contracts[0].known.values() if plan.contracts else ()
    all_findings = (*plan.findings, *(f for v in verdicts for f in v.findings if f not in plan.findings))
    return Report(
        contracts=tuple(verdicts),
        findings=all_findings,
        devices=validation.devices,
        seed=request.seed,
        seconds=time.monotonic() - started,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        notes=(*plan.notes, *filter(None, (*notes, *_notes_on_old_names(plan)))),
        unmatched=plan.unmatched,
        shards=(request.shard,) if request.shard is not None else (),
        commit=worktree.commit_of(plan.project.root),
        edits=worktree.digest_of_changes(plan.project),
        files=worktree.digests(plan.project, files),
        project={contract.id: str(contract.location.path) for contract in (*project_contracts, *plan.contracts)},
    )


def _notes_on_old_names(plan: Plan) -> Iterator[str]:
    """Yield a note for every subject of a suite whose declarations use names of version 0.2; a note may be empty."""
    for contract in plan.contracts:
        subject = plan.subjects.get(contract.id) or contract.subject
        if subject is None or not any("needs" in claim.options for claim in contract.falsifiers):
            continue
        with suppress(Unbound, SyntaxError, ValueError):  # lint reports names that cannot be resolved
            file = target_file(plan.project, subject)
            if not is_shipped(file):
                yield old_names_note(str(subject), read_declarations(source(file), subject.attribute))


def _repeat(request: Request) -> tuple[str, ...]:
    """Return the words of the command that repeats a trial; a report adds the id of the claim."""
    replay = [f"--replay {shlex.quote(request.replay)}"] if request.replay else []
    seed = [f"--seed {request.seed}"] if request.seed else []
    # The command of `pv check` contains the subject and the suite already.
    if request.command != Request().command:
        return (request.command, *seed, *replay)
    words = [request.command, *(str(path) for path in request.paths)]
    words += [f"--subject {contract}={target}" for contract, target in request.subjects.items()]
    if request.examples is not None:
        words.append(f"--examples {request.examples}")
    words += seed
    if not request.mutants:
        words.append("--no-mutants")
    return (*words, *replay)


def _with_records(
    plan: Plan, validation: Validation, attempts: Attempts, contract: Contract
) -> tuple[Evidence, list[Finding]]:
    """Return the evidence of a contract, completed by recorded evidence, and findings about unusable evidence files."""
    evidence = counterexamples.locate_code(plan.project, contract, validation.evidence(contract))
    evidence = counterexamples.write_replays(plan.project, evidence)
    if not contract.strict or not plan.runnable(contract):
        return evidence, []

    def fingerprints() -> dict[str, store.Fingerprint]:
        claims = ((claim, attempts.subject(contract, claim)) for claim in contract.claims)
        return {claim.id: store.fingerprint(plan.project, contract, claim, subject) for claim, subject in claims}

    recorded: dict[tuple[str, str], Recorded] = {}
    problems: list[Finding] = []
    for name in (*DEVICES[1:], PROOFS):
        records, broken = store.read(plan.project, contract, name, fingerprints)
        recorded |= records
        problems += broken
    mutation_score, broken = score.read(plan.project, contract)
    return replace(evidence, recorded=recorded, score=mutation_score), [*problems, *broken]
