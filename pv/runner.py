"""Validates contracts: picks them, carries the campaign out, keeps what is to be kept, and reports."""

import os
import platform
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

from pv import __version__, records
from pv.campaign import Campaign, Options, Progress
from pv.devices import Probe
from pv.errors import PvError
from pv.evidence import PROOFS, Ending, Evidence, Recorded, Trial
from pv.linting import MUTANT_STALE
from pv.model import Contract, Finding
from pv.mutation import score
from pv.project import Project
from pv.request import DEVICES, Chosen, Request, choose, project_of
from pv.verdict import ContractVerdict, Report, Status, decide

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
    record: bool = False,
    spawn: bool = False,
    probe: Probe | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Attacks the claims of contracts and reports what held and how hard it was tried.

    `paths` are contract files and folders (default: the project's). `only` and `contracts` are glob patterns over the
    ids of falsifiers and of contracts. `devices` are exactly the cells to run (default: the CPU, with other devices
    from the record); `require` names devices whose recorded cells count too. `subjects` maps a contract's id to the
    `module` or `module:attribute` that is attacked in its subject's place. `replay` is an example to run instead of a
    search: "VERSION:BLOB" as a report prints it, or the arguments as a JSON object. Without `mutants` nothing is asked
    of the falsifiers, only of the subject. `record` keeps the cells of devices
    other than the CPU under the project's evidence folder. `probe` says what a device is, or None where it is absent.

    Raises UsageError for a request that cannot be met, ProjectError for an unusable [tool.pv], WorkerLost when no
    worker can be started, and Interrupted, which carries a report, when a KeyboardInterrupt stops it.
    """
    started = time.monotonic()
    request = Request(
        paths=paths,
        only=only,
        contracts=contracts,
        devices=devices,
        require=frozenset(require),
        subjects=subjects or {},
        replay=replay,
        mutants=mutants,
        record=record,
        jobs=jobs,
        examples=examples,
        seed=seed,
    )
    chosen = choose(project or project_of(paths), request)
    options = _options(request, fail_fast=fail_fast, spawn=spawn, probe=probe, on_progress=on_progress)
    campaign = _campaign(chosen, options)
    interrupted = _stopped(campaign)
    if record and not interrupted:
        _record(chosen, campaign)
    return _told(_report(chosen, campaign, started, request), interrupted=interrupted)


def _options(
    request: Request,
    *,
    fail_fast: bool,
    spawn: bool,
    probe: Probe | None,
    on_progress: Callable[[Progress], None] | None,
) -> Options:
    return Options(
        jobs=request.jobs or os.cpu_count() or 1,
        fail_fast=fail_fast,
        examples=request.examples,
        seed=request.seed,
        replay=request.replay,
        spawn=spawn,
        probe=probe,
        on_progress=on_progress,
    )


def _campaign(chosen: Chosen, options: Options) -> Campaign:
    """What is to be tried of the contracts that lint lets run."""
    runnable = [c for c in chosen.contracts if c.strict and chosen.runnable(c)]
    stale = frozenset(f.where for f in chosen.findings if f.code in MUTANT_STALE)
    return Campaign(chosen.project, runnable, chosen.selections, chosen.subjects, options, stale)


def _stopped(campaign: Campaign) -> bool:
    """Carries the campaign out; whether it was interrupted."""
    try:
        campaign.run()
    except KeyboardInterrupt:
        return True
    return False


def _told(report: Report, *, interrupted: bool) -> Report:
    """The report. Raises Interrupted with it, where it is of what was known by then."""
    if interrupted:
        notes = (*report.notes, "interrupted: what had not run is undecided")
        raise Interrupted(replace(report, notes=notes, interrupted=True))
    return report


def _record(chosen: Chosen, campaign: Campaign) -> None:
    for contract in chosen.contracts:
        evidence = campaign.evidence(contract)
        for device, hardware in evidence.devices.items():
            if device == "cpu":
                continue
            trials = {f: t for (f, d), t in evidence.trials.items() if d == device}
            if trials:
                bases = campaign.bases(contract)
                records.write(chosen.project, contract, device, hardware, trials, bases)
        proved = {h.id: t for h in contract.harnesses if (t := evidence.trials.get((h.id, "cpu"))) and _is_proof(t)}
        if proved:
            bases = campaign.bases(contract)
            records.write(chosen.project, contract, PROOFS, evidence.devices["cpu"], proved, bases)


def _is_proof(trial: Trial) -> bool:
    return trial.ending is Ending.HELD and bool(trial.reached)


def _report(chosen: Chosen, campaign: Campaign, started: float, request: Request) -> Report:
    verdicts: list[ContractVerdict] = []
    for contract in chosen.contracts:
        mine = tuple(f for f in chosen.findings if f.where.path == contract.where.path)
        evidence, problems = _with_records(chosen, campaign, contract)
        verdict = decide(contract, evidence, chosen.selections[contract.id], (*mine, *problems))
        verdicts.append(replace(verdict, subject=request.subjects.get(contract.id, "")))
    verdicts.sort(key=lambda v: (_ORDER.index(v.status), v.contract.id))
    all_findings = (*chosen.findings, *(f for v in verdicts for f in v.findings if f not in chosen.findings))
    return Report(
        contracts=tuple(verdicts),
        findings=all_findings,
        devices=campaign.devices,
        seed=request.seed,
        seconds=time.monotonic() - started,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        python=platform.python_version(),
        hypothesis=version("hypothesis"),
        notes=(*chosen.notes, *campaign.notes, *(f"{pattern} names nothing" for pattern in chosen.unmatched)),
        unmatched=chosen.unmatched,
        repeat=_repeat(request),
    )


def _repeat(request: Request) -> tuple[str, ...]:
    """The words of the command line without which a cell would not be repeated as it was."""
    words = [str(path) for path in request.paths]
    words += [f"--subject {contract}={target}" for contract, target in request.subjects.items()]
    words += [f"--examples {request.examples}"] if request.examples is not None else []
    words += [f"--seed {request.seed}"] if request.seed else []
    return (*words, *([f"--replay {shlex.quote(request.replay)}"] if request.replay else []))


def _with_records(chosen: Chosen, campaign: Campaign, contract: Contract) -> tuple[Evidence, list[Finding]]:
    """The evidence of a contract with that recorded elsewhere. A contract with another subject has none recorded."""
    evidence = campaign.evidence(contract)
    if not contract.strict or not chosen.runnable(contract):
        return evidence, []
    recorded: dict[tuple[str, str], Recorded] = {}
    problems: list[Finding] = []
    for device in (*DEVICES[1:], PROOFS):
        found, broken = records.read(chosen.project, contract, device, partial(campaign.bases, contract))
        recorded |= found
        problems += broken
    measured, broken = score.read(chosen.project, contract)
    return replace(evidence, recorded=recorded, score=measured), [*problems, *broken]
