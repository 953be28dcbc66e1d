"""Validate contracts: plan, run trials, read recorded evidence, decide verdicts, and report."""

import platform
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

from pv import __version__
from pv.commands import counterexamples
from pv.commands.declarations import old_names_note, read_declarations
from pv.commands.plan import DEVICES, Plan, Request, plan_validation, project_of
from pv.commands.validation.attempts import Options
from pv.commands.validation.trials import Trials
from pv.contract.finding import Finding
from pv.contract.model import Contract, Target
from pv.engines.replay import read as read_example
from pv.errors import PvError
from pv.linting import MUTANT_STALE
from pv.mutation import score
from pv.results import store, worktree
from pv.results.reuse.cache import ResultCache
from pv.results.trial import PROOFS, Evidence, Recorded
from pv.results.verdict import ContractVerdict, Report, Status, decide, parse_shard
from pv.source.project import Project, is_shipped
from pv.source.resolve import Unbound, source, target_file
from pv.workers import tasks
from pv.workers.device import Probe
from pv.workers.pool import PoolCache, default_jobs, refuse_optimized
from pv.workers.scheduler import OnProgress

_ORDER = [Status.FAIL, Status.UNDECIDED, Status.PASS]


class Interrupted(PvError):
    """The validation was stopped by Ctrl-C; `report` holds the results so far."""

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
        project: The project of the contracts (default: that of the first path, or of the working directory).
        only: Glob patterns over the ids of claims.
        contracts: Glob patterns over the ids of contracts.
        devices: Devices to run on (default: the CPU; results of other devices are read from the evidence folder).
        require: Devices whose recorded results must also hold.
        subjects: By contract id, a `module` or `module:attribute` to test instead of the contract's own subject.
        jobs: Number of workers that compute at a time (default: cores + 1).
        fail_fast: Stop at the first failure.
        examples: Number of examples per falsifier (default: from the contract).
        seed: Seed of the examples.
        replay: One example to run instead of a search: "VERSION:BLOB" as a report prints it, the arguments as a JSON
            object, or "@FILE" with either.
        mutants: Try falsifiers that hold on mutants.
        shard: "K/N" to run only part K of N; `pv report` merges the parts.
        record: Write proofs and results of other devices to the evidence folder, as soon as they are measured.
        reuse: Reuse results of earlier validations while nothing that they depend on has changed, and store new ones.
            Ignored with `record` or `replay`.
        spawn: Start every worker in a new interpreter.
        probe: Returns the information on a device by name; None if the device is absent.
        on_progress: Called with the progress.

    Returns:
        The report, worst contract first.

    Raises:
        UsageError: The request is invalid.
        ProjectError: The table [tool.pv] cannot be used.
        WorkerLost: No worker can be started.
        Interrupted: A KeyboardInterrupt stopped the validation; its `report` holds the results so far.
    """
    refuse_optimized()
    named = Request(paths=paths, only=only, contracts=contracts, devices=devices, subjects=subjects or {})
    selected = replace(named, require=frozenset(require), shard=parse_shard(shard) if shard else None)
    tried = replace(selected, jobs=jobs, examples=examples, seed=seed, mutants=mutants, replay=read_example(replay))
    reused = reuse and not (record or replay)
    request = replace(tried, record=record, reuse=reused)
    options = options_of(request, fail_fast=fail_fast, spawn=spawn, probe=probe, on_progress=on_progress)
    return validated(project or project_of(paths), request, options, replay)


def options_of(
    request: Request,
    *,
    fail_fast: bool = False,
    spawn: bool = False,
    probe: Probe | None = None,
    on_progress: OnProgress | None = None,
) -> Options:
    """Return the options of a request, without shared workers."""
    return Options(
        jobs=request.jobs or default_jobs(),
        fail_fast=fail_fast,
        examples=request.examples,
        seed=request.seed,
        replay=request.replay,
        spawn=spawn,
        probe=probe,
        on_progress=on_progress,
    )


def validated(project: Project, request: Request, options: Options, replay: str = "") -> Report:
    """Plan and run a validation, and return its report.

    Args:
        project: The project of the contracts.
        request: The request.
        options: The options of its attempts.
        replay: The example to replay as the user wrote it, for the command in the report.

    Raises:
        Interrupted: As for `validate`.
    """
    started = time.monotonic()
    with PoolCache(options.jobs, spawn=options.spawn) as own_pools:
        pools = options.pools or (own_pools if options.fail_fast else None)
        # With --fail-fast the time to the first result matters most: workers start while lint runs.
        early = pools if options.fail_fast else None
        plan = plan_validation(project, request, partial(_begin, early, project) if early else None)
        if request.record:
            store.refuse_unwritable(project)
        with closing(ResultCache(project)) if request.reuse else nullcontext() as cache:
            trials = _trials(plan, replace(options, reuse=cache, pools=pools, record=request.record), request.absent)
            trials.run()
    report = _report(plan, trials, started, replace(request, replay=replay))
    if trials.interrupted:
        notes = (*report.notes, "interrupted: what had not run is undecided")
        raise Interrupted(replace(report, notes=notes, interrupted=True))
    return report


def _begin(pools: PoolCache, project: Project, contracts: Sequence[Contract], targets: Mapping[str, Target]) -> None:
    """Start workers that load their libraries while the contracts are linted."""
    with suppress(PvError, LookupError):  # lint says what cannot be resolved
        strict = [contract for contract in contracts if contract.strict]
        subjects = {targets.get(c.id) or c.subject_of(claim) for c in strict for claim in c.claims}
        with pools.pool(tasks.preload(project, strict, subjects)) as pool:
            pool.begin()


def _trials(plan: Plan, options: Options, absent: str) -> Trials:
    """Return the trials of the contracts without lint errors; no contract is tried if the subject is `absent`."""
    runnable = [c for c in plan.contracts if c.strict and plan.runnable(c) and not absent]
    stale = frozenset(f.location for f in plan.findings if f.code in MUTANT_STALE)
    return Trials(plan.project, runnable, plan.selections, plan.subjects, options, stale, absent)


def _report(plan: Plan, trials: Trials, started: float, request: Request) -> Report:
    verdicts: list[ContractVerdict] = []
    files: set[str] = set()
    for contract in plan.contracts:
        mine = tuple(f for f in plan.findings if f.location.path == contract.location.path)
        evidence, problems = _with_records(plan, trials, contract)
        files.update(*(trial.files for trial in evidence.trials.values()))
        verdict = decide(contract, evidence, plan.selections[contract.id], (*mine, *problems))
        verdicts.append(replace(verdict, subject=request.subjects.get(contract.id, ""), repeat=_repeat(request)))
    verdicts.sort(key=lambda v: (_ORDER.index(v.status), v.contract.id))
    all_findings = (*plan.findings, *(f for v in verdicts for f in v.findings if f not in plan.findings))
    return Report(
        contracts=tuple(verdicts),
        findings=all_findings,
        devices=trials.devices,
        seed=request.seed,
        seconds=time.monotonic() - started,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        python=platform.python_version(),
        hypothesis=version("hypothesis"),
        notes=(*plan.notes, *trials.notes, *_old_names(plan)),
        unmatched=plan.unmatched,
        shards=(request.shard,) if request.shard is not None else (),
        commit=store.commit_of(plan.project.root),
        edits=worktree.edits(plan.project),
        files=worktree.digests(plan.project, files),
        project=_project(plan),
    )


def _old_names(plan: Plan) -> Iterator[str]:
    """Yield a note for each subject of a suite that declares its features by names of version 0.2."""
    for contract in plan.contracts:
        subject = plan.subjects.get(contract.id) or contract.subject
        if subject is None or not any("needs" in claim.options for claim in contract.falsifiers):
            continue
        with suppress(Unbound, SyntaxError, ValueError):  # lint says what cannot be resolved
            file = target_file(plan.project, subject)
            if not is_shipped(file):
                note = old_names_note(str(subject), read_declarations(source(file), subject.attribute))
                yield from [note] if note else []


def _project(plan: Plan) -> dict[str, str]:
    """Return the path of every contract of the project by id."""
    # Every loaded contract has a mapping of all contracts of the project.
    project_contracts = plan.contracts[0].known.values() if plan.contracts else ()
    return {contract.id: str(contract.location.path) for contract in (*project_contracts, *plan.contracts)}


def _repeat(request: Request) -> tuple[str, ...]:
    """Return the words of the command that repeats a result, without the id of the claim."""
    replay = [f"--replay {shlex.quote(request.replay)}"] if request.replay else []
    seed = [f"--seed {request.seed}"] if request.seed else []
    if request.command != Request().command:
        return (request.command, *seed, *replay)
    words = [request.command, *(str(path) for path in request.paths)]
    words += [f"--subject {contract}={target}" for contract, target in request.subjects.items()]
    words += [f"--examples {request.examples}"] if request.examples is not None else []
    words += seed + ([] if request.mutants else ["--no-mutants"])
    return (*words, *replay)


def _with_records(plan: Plan, trials: Trials, contract: Contract) -> tuple[Evidence, list[Finding]]:
    """Return the evidence of a contract with its recorded evidence, and findings about unusable evidence files."""
    evidence = counterexamples.write_replays(
        plan.project, counterexamples.locate_code(plan.project, contract, trials.evidence(contract))
    )
    if not contract.strict or not plan.runnable(contract):
        return evidence, []
    recorded: dict[tuple[str, str], Recorded] = {}
    problems: list[Finding] = []
    for device in (*DEVICES[1:], PROOFS):
        records, broken = store.read(plan.project, contract, device, partial(trials.fingerprints, contract))
        recorded |= records
        problems += broken
    measured, broken = score.read(plan.project, contract)
    return replace(evidence, recorded=recorded, score=measured), [*problems, *broken]
