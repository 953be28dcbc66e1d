"""Validates contracts: chooses them, runs their trials, records evidence, and reports."""

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
from pv.commands import code_places, replays
from pv.commands.declarations import old_names_note, read_declarations
from pv.commands.request import DEVICES, Chosen, Request, choose, project_of
from pv.commands.validation.attempt import Options
from pv.commands.validation.trials import Trials
from pv.contract.finding import Finding
from pv.contract.model import Contract
from pv.contract.names import Target
from pv.engines.replay import read as read_example
from pv.errors import PvError
from pv.linting import MUTANT_STALE
from pv.mutation import score
from pv.results import store, worktree
from pv.results.reuse.cache import Reuse
from pv.results.shard import parse
from pv.results.trial import PROOFS, Evidence, Recorded
from pv.results.verdict import ContractVerdict, Report, Status, decide
from pv.source.project import Project, is_shipped
from pv.source.resolve import Unbound, source, target_file
from pv.workers import tasks
from pv.workers.device import Probe
from pv.workers.pool import default_jobs, refuse_optimized
from pv.workers.pools import Pools
from pv.workers.scheduler import OnProgress

_ORDER = [Status.FAIL, Status.UNDECIDED, Status.PASS]


class Interrupted(PvError):
    """The validation was stopped by Ctrl-C; `report` holds what was known by then."""

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

    paths: contract files and folders, or ids (default: the project's). only, contracts: glob patterns over the ids of
    claims and of contracts. devices: the devices to run on (default: the CPU; results of other devices are read from
    the evidence folder). require: devices whose recorded results must also hold. subjects: by contract id, the
    `module` or `module:attribute` to test instead of the contract's own subject. replay: one example to run instead
    of a search: "VERSION:BLOB" as a report prints it, the arguments as a JSON object, or "@FILE" with either. mutants:
    whether falsifiers that hold are then tried on mutants. shard: "K/N", the only part to run of N, which `pv report`
    merges. record: write proofs and results of other devices to the evidence folder, each as soon as it is known.
    reuse: take over good results of earlier validations while nothing that they depend on has changed, and keep the new
    ones; never with `record` or `replay`. probe: returns the information on a device by name, None if it is absent.

    Raise UsageError for an invalid request, ProjectError for an unusable [tool.pv], WorkerLost if no worker can be
    started, and Interrupted, which carries a report, after a KeyboardInterrupt.
    """
    refuse_optimized()
    named = Request(paths=paths, only=only, contracts=contracts, devices=devices, subjects=subjects or {})
    selected = replace(named, require=frozenset(require), shard=parse(shard) if shard else None)
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
    """Return the options of a request, for workers of its own."""
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
    """Carry out `validate`; `replay` is the example as it was written."""
    started = time.monotonic()
    with Pools(options.jobs, spawn=options.spawn) as own:
        pools = options.pools or (own if options.fail_fast else None)
        early = pools if options.fail_fast else None
        chosen = choose(project, request, partial(_begin, early, project) if early else None)
        if request.record:
            store.refuse_unwritable(project)
        with closing(Reuse(project)) if request.reuse else nullcontext() as kept:
            trials = _trials(chosen, replace(options, reuse=kept, pools=pools, record=request.record), request.absent)
            trials.run()
    report = _report(chosen, trials, started, replace(request, replay=replay))
    if trials.interrupted:
        notes = (*report.notes, "interrupted: what had not run is undecided")
        raise Interrupted(replace(report, notes=notes, interrupted=True))
    return report


def _begin(pools: Pools, project: Project, contracts: Sequence[Contract], targets: Mapping[str, Target]) -> None:
    """Let workers load their libraries while the contracts are linted."""
    with suppress(PvError, LookupError):  # lint says what cannot be resolved
        strict = [contract for contract in contracts if contract.strict]
        subjects = {targets.get(c.id) or c.subject_of(claim) for c in strict for claim in c.claims}
        with pools.pool(tasks.preload(project, strict, subjects)) as pool:
            pool.begin()


def _trials(chosen: Chosen, options: Options, absent: str) -> Trials:
    """Return the trials of the contracts that lint found runnable; none if the subject is `absent`."""
    runnable = [c for c in chosen.contracts if c.strict and chosen.runnable(c) and not absent]
    stale = frozenset(f.location for f in chosen.findings if f.code in MUTANT_STALE)
    return Trials(chosen.project, runnable, chosen.selections, chosen.subjects, options, stale, absent)


def _report(chosen: Chosen, trials: Trials, started: float, request: Request) -> Report:
    verdicts: list[ContractVerdict] = []
    files: set[str] = set()
    for contract in chosen.contracts:
        mine = tuple(f for f in chosen.findings if f.location.path == contract.location.path)
        evidence, problems = _with_records(chosen, trials, contract)
        files.update(*(trial.files for trial in evidence.trials.values()))
        verdict = decide(contract, evidence, chosen.selections[contract.id], (*mine, *problems))
        verdicts.append(replace(verdict, subject=request.subjects.get(contract.id, ""), repeat=_repeat(request)))
    verdicts.sort(key=lambda v: (_ORDER.index(v.status), v.contract.id))
    all_findings = (*chosen.findings, *(f for v in verdicts for f in v.findings if f not in chosen.findings))
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
        notes=(*chosen.notes, *trials.notes, *_old_names(chosen)),
        unmatched=chosen.unmatched,
        shards=(request.shard,) if request.shard is not None else (),
        commit=store.commit_of(chosen.project.root),
        edits=worktree.edits(chosen.project),
        files=worktree.digests(chosen.project, files),
        project=_project(chosen),
    )


def _old_names(chosen: Chosen) -> Iterator[str]:
    """Yield a note for each subject of a suite that declares its features by names of version 0.2."""
    for contract in chosen.contracts:
        subject = chosen.subjects.get(contract.id) or contract.subject
        if subject is None or not any("needs" in claim.options for claim in contract.falsifiers):
            continue
        with suppress(Unbound, SyntaxError, ValueError):  # lint says what cannot be resolved
            file = target_file(chosen.project, subject)
            if not is_shipped(file):
                note = old_names_note(str(subject), read_declarations(source(file), subject.attribute))
                yield from [note] if note else []


def _project(chosen: Chosen) -> dict[str, str]:
    """Return the path of every contract of the project by id. Each contract knows all of them."""
    known = chosen.contracts[0].known.values() if chosen.contracts else ()
    return {contract.id: str(contract.location.path) for contract in (*known, *chosen.contracts)}


def _repeat(request: Request) -> tuple[str, ...]:
    """Return the command line that repeats a result, without the claim."""
    replay = [f"--replay {shlex.quote(request.replay)}"] if request.replay else []
    seed = [f"--seed {request.seed}"] if request.seed else []
    if request.command != Request().command:
        return (request.command, *seed, *replay)
    words = [request.command, *(str(path) for path in request.paths)]
    words += [f"--subject {contract}={target}" for contract, target in request.subjects.items()]
    words += [f"--examples {request.examples}"] if request.examples is not None else []
    words += seed + ([] if request.mutants else ["--no-mutants"])
    return (*words, *replay)


def _with_records(chosen: Chosen, trials: Trials, contract: Contract) -> tuple[Evidence, list[Finding]]:
    """Return the evidence of a contract, recorded evidence included. Only the own subject has recorded evidence."""
    evidence = replays.write_replays(
        chosen.project, code_places.locate(chosen.project, contract, trials.evidence(contract))
    )
    if not contract.strict or not chosen.runnable(contract):
        return evidence, []
    recorded: dict[tuple[str, str], Recorded] = {}
    problems: list[Finding] = []
    for device in (*DEVICES[1:], PROOFS):
        found, broken = store.read(chosen.project, contract, device, partial(trials.fingerprints, contract))
        recorded |= found
        problems += broken
    measured, broken = score.read(chosen.project, contract)
    return replace(evidence, recorded=recorded, score=measured), [*problems, *broken]
