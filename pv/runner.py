"""Validates contracts: loads, lints, tries every selected falsifier in a worker, then its mutants, and concludes."""

import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path

from pv import __version__, records
from pv.campaign import Campaign, Options, Progress
from pv.devices import Probe
from pv.errors import PvError, UsageError
from pv.evidence import Evidence, Recorded
from pv.linting import MUTANT_STALE, RUNNABLE, lint
from pv.loading import load
from pv.model import Contract, Finding, Severity, Target
from pv.project import Project, find_project
from pv.verdict import ContractVerdict, Report, Selection, Status, decide

_ORDER = [Status.FAIL, Status.UNDECIDED, Status.PASS]
DEVICES = ("cpu", "cuda")


class Interrupted(PvError):
    """The validation was stopped by Ctrl-C; `report` holds what was known by then."""

    def __init__(self, report: Report) -> None:
        super().__init__("interrupted")
        self.report = report


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """The contracts that a validation is about, and their lint findings."""

    project: Project
    contracts: tuple[Contract, ...]
    findings: tuple[Finding, ...]
    selections: Mapping[str, Selection]
    subjects: Mapping[str, Target] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def runnable(self, contract: Contract) -> bool:
        """Whether nothing that lint found keeps the contract's falsifiers from running."""
        mine = (f for f in self.findings if f.where.path == contract.where.path)
        return all(f.severity is Severity.NOTICE or f.code in RUNNABLE for f in mine)


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
    search: "VERSION:BLOB" as a report prints it, or the arguments as a JSON object. `record` keeps the cells of devices
    other than the CPU under the project's evidence folder. `probe` says what a device is, or None where it is absent.

    Raises UsageError for a request that cannot be met, ProjectError for an unusable [tool.pv], WorkerLost when no
    worker can be started, and Interrupted, which carries a report, when a KeyboardInterrupt stops it.
    """
    started = time.monotonic()
    project = project or find_project(Path.cwd())
    _check_request(devices, require, replay, only)
    _check_record(devices, record, subjects or {})
    chosen = _choose(project, paths, only, contracts, devices, frozenset(require), subjects or {}, bool(replay))
    options = Options(
        jobs=jobs or os.cpu_count() or 1,
        fail_fast=fail_fast,
        examples=examples,
        seed=seed,
        replay=replay,
        spawn=spawn,
        probe=probe,
        on_progress=on_progress,
    )
    runnable = [c for c in chosen.contracts if c.strict and chosen.runnable(c)]
    stale = frozenset(f.where for f in chosen.findings if f.code in MUTANT_STALE)
    campaign = Campaign(project, runnable, chosen.selections, chosen.subjects, options, stale)
    interrupted = False
    try:
        campaign.run()
    except KeyboardInterrupt:
        interrupted = True
    if record and not interrupted:
        _record(chosen, campaign)
    report = _report(chosen, campaign, started, seed)
    if interrupted:
        notes = (*report.notes, "interrupted: what had not run is undecided")
        raise Interrupted(replace(report, notes=notes, interrupted=True))
    return report


def check(
    paths: Sequence[str | Path] = (), *, project: Project | None = None, subjects: Mapping[str, str] | None = None
) -> tuple[tuple[Contract, ...], tuple[Finding, ...]]:
    """The well-formed contracts under `paths` (default: the project's), and all that loading and lint found.

    Raises UsageError for a path that does not exist, ProjectError for an unusable [tool.pv].
    """
    project = project or find_project(Path.cwd())
    loaded = load(_existing(paths or project.contracts))
    targets = _targets(loaded.contracts, subjects or {})
    return loaded.contracts, (*loaded.findings, *lint(loaded.contracts, project=project, subjects=targets))


def _targets(contracts: Sequence[Contract], subjects: Mapping[str, str]) -> dict[str, Target]:
    targets = {id_: _target(text) for id_, text in subjects.items()}
    unknown = sorted(set(targets) - {c.id for c in contracts})
    if unknown:
        known = ", ".join(c.id for c in contracts)
        raise UsageError(f"--subject names the contract {unknown[0]!r}; the contracts are {known or 'none'}")
    return targets


def _check_request(devices: Sequence[str] | None, require: Iterable[str], replay: str, only: Sequence[str]) -> None:
    for name in [*(devices or ()), *require]:
        if name not in DEVICES:
            raise UsageError(f"there is no device {name!r}; the devices are {', '.join(DEVICES)}")
    if replay and len(only) != 1:
        raise UsageError("a replay needs exactly one falsifier: name it with --only")
    if replay and not _is_example(replay):
        raise UsageError(f"{replay!r} is no example; it is VERSION:BLOB as a report prints it, or a JSON object")


def _is_example(replay: str) -> bool:
    if not replay.startswith("{"):
        return re.fullmatch(r"[0-9.]+:[A-Za-z0-9+/=_-]+", replay) is not None
    try:
        return isinstance(json.loads(replay), dict)
    except ValueError:
        return False


def _check_record(devices: Sequence[str] | None, record: bool, subjects: Mapping[str, str]) -> None:
    if record and subjects:
        raise UsageError("evidence is recorded for a contract's own subject: leave out --subject or --record")
    if record and not set(devices or ()) - {"cpu"}:
        raise UsageError("only cells of a device other than the CPU are recorded: add --device cuda")


def _choose(
    project: Project,
    paths: Sequence[str | Path],
    only: Sequence[str],
    wanted: Sequence[str],
    devices: Sequence[str] | None,
    require: frozenset[str],
    subjects: Mapping[str, str],
    replay: bool,
) -> _Chosen:
    loaded, findings = check(paths, project=project, subjects=subjects)
    targets = _targets(loaded, subjects)
    picked = [c for c in loaded if not wanted or any(fnmatchcase(c.id, pattern) for pattern in wanted)]
    selections: dict[str, Selection] = {}
    for contract in picked:
        ids = [f.id for f in contract.falsifiers if any(fnmatchcase(f.id, pattern) for pattern in only)]
        if ids or not only:
            selections[contract.id] = Selection(
                falsifiers=frozenset(ids) if only else None,
                devices=tuple(dict.fromkeys(devices)) if devices else None,
                require=require,
                mutants=not replay,
            )
    chosen = tuple(c for c in picked if c.id in selections)
    refused = any(f.severity is Severity.REFUSAL for f in findings)
    notes = () if chosen or refused else (_nothing(loaded, only, wanted),)
    mine = {c.where.path for c in chosen}
    shown = tuple(f for f in findings if f.severity is not Severity.ERROR or f.where.path in mine or not chosen)
    return _Chosen(
        project=project, contracts=chosen, findings=shown, selections=selections, subjects=targets, notes=notes
    )


def _existing(paths: Sequence[str | Path]) -> list[Path]:
    for path in paths:
        if not os.path.lexists(path):
            raise UsageError(f"there is no {path}; name a contract file or a folder of contracts")
    return [Path(path) for path in paths]


def _target(text: str) -> Target:
    target = Target.parse(text)
    parts = [*target.module.split("."), *(target.attribute.split(".") if target.attribute else [])]
    if not all(part.isidentifier() and not part.startswith("_") for part in parts):
        raise UsageError(f"{text!r} is no subject; a subject is module or module:attribute")
    return target


def _nothing(contracts: Sequence[Contract], only: Sequence[str], wanted: Sequence[str]) -> str:
    asked = ", ".join([*(f"--only {p}" for p in only), *(f"--contract {p}" for p in wanted)])
    if not contracts:
        return "nothing was measured: there are no contracts here"
    return f"nothing was measured: nothing matches {asked}; `pv list` shows what there is"


def _record(chosen: _Chosen, campaign: Campaign) -> None:
    for contract in chosen.contracts:
        evidence = campaign.evidence(contract)
        for device, hardware in evidence.devices.items():
            if device == "cpu":
                continue
            trials = {f: t for (f, d), t in evidence.trials.items() if d == device}
            if trials:
                bases = campaign.bases(contract)
                records.write(chosen.project, contract, device, hardware, trials, bases)


def _report(chosen: _Chosen, campaign: Campaign, started: float, seed: int) -> Report:
    verdicts: list[ContractVerdict] = []
    loose = list(chosen.findings)
    for contract in chosen.contracts:
        mine = tuple(f for f in chosen.findings if f.where.path == contract.where.path)
        evidence, problems = _with_records(chosen, campaign, contract)
        verdicts.append(decide(contract, evidence, chosen.selections[contract.id], (*mine, *problems)))
        loose = [f for f in loose if f not in mine]
    verdicts.sort(key=lambda v: (_ORDER.index(v.status), v.contract.id))
    all_findings = (*chosen.findings, *(f for v in verdicts for f in v.findings if f not in chosen.findings))
    return Report(
        contracts=tuple(verdicts),
        findings=all_findings,
        devices=campaign.devices,
        seed=seed,
        seconds=time.monotonic() - started,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        python=platform.python_version(),
        hypothesis=version("hypothesis"),
        notes=(*chosen.notes, *campaign.notes),
    )


def _with_records(chosen: _Chosen, campaign: Campaign, contract: Contract) -> tuple[Evidence, list[Finding]]:
    """The evidence of a contract with that recorded elsewhere. A contract with another subject has none recorded."""
    evidence = campaign.evidence(contract)
    if not contract.strict or not chosen.runnable(contract):
        return evidence, []
    recorded: dict[tuple[str, str], Recorded] = {}
    problems: list[Finding] = []
    for device in DEVICES[1:]:
        found, broken = records.read(chosen.project, contract, device, campaign.bases(contract))
        recorded |= found
        problems += broken
    return replace(evidence, recorded=recorded), problems
