"""Plan a validation: check the request, then load, select, divide and lint its contracts."""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from pv.commands.naming import claim_hint, must_be_installed, resolve_names, resolve_subject, target_of
from pv.contract.finding import Finding, Severity
from pv.contract.load import Loaded, is_folder, load
from pv.contract.model import Contract, Target
from pv.contract.suites import for_other_subject, is_suite
from pv.contract.wording import FEW, listed
from pv.engines.registry import engine_of
from pv.engines.replay import refuse_form
from pv.errors import UsageError
from pv.linting import RUNNABLE, lint
from pv.results.outcome import Selection
from pv.results.verdict import Shard
from pv.source.project import Project, find_project

DEVICES = ("cpu", "cuda")
BeforeLint = Callable[[Sequence[Contract], Mapping[str, Target]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The arguments of `pv.validate`, which describes them.

    Attributes:
        cannot_try_reason: The reason why nothing can be tried; "" if the subject can be tried.
        command: The command line without its options, for the reports.
    """

    paths: Sequence[str | Path] = ()
    only: Sequence[str] = ()
    contracts: Sequence[str] = ()
    devices: Sequence[str] | None = None
    require: frozenset[str] = frozenset()
    subjects: Mapping[str, str] = field(default_factory=dict)
    replay: str = ""
    mutants: bool = True
    record: bool = False
    reuse: bool = False
    shard: Shard | None = None
    fail_fast: bool = False
    spawn: bool = False
    jobs: int | None = None
    examples: int | None = None
    seed: int = 0
    cannot_try_reason: str = ""
    command: str = "pv validate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a validation.

    Attributes:
        project: The project of the contracts.
        contracts: The selected contracts.
        findings: Lint findings about these contracts, and findings about contract files that could not be loaded.
        selections: The requested claims and devices, by id of the contract.
        subjects: Requested subjects, by id of the contract.
        notes: Texts for the report.
        unmatched: Patterns of the request that match nothing.
    """

    project: Project
    contracts: tuple[Contract, ...]
    findings: tuple[Finding, ...]
    selections: Mapping[str, Selection]
    subjects: Mapping[str, Target] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()

    def runnable(self, contract: Contract) -> bool:
        """Return whether the contract has no finding that prevents its trials."""
        findings = (f for f in self.findings if f.location.path == contract.location.path)
        return all(f.severity is Severity.NOTICE or f.code in RUNNABLE for f in findings)


def check(
    paths: Sequence[str | Path] = (), *, project: Project | None = None, subjects: Mapping[str, str] | None = None
) -> tuple[tuple[Contract, ...], tuple[Finding, ...]]:
    """Load and lint contracts.

    Args:
        paths: Files, folders, or ids of contracts or claims of the project (default: all contracts of the project).
        project: The project (default: the project of the first path if it is declared there, else the project of the
            working directory).
        subjects: Requested subjects, by id of the contract.

    Returns:
        The well-formed contracts, and all findings.

    Raises:
        UsageError: A path, contract or subject is unknown.
        ProjectError: The table [tool.pv] cannot be used.
    """
    project = project or project_of(paths)
    loaded = read(paths, project)
    targets = _targets(loaded.contracts, subjects or {}, project)
    contracts = _without_suite_mutants(loaded.contracts, targets)
    return contracts, (*loaded.findings, *lint(contracts, project=project, subjects=targets))


def _without_suite_mutants(contracts: Sequence[Contract], targets: Mapping[str, Target]) -> tuple[Contract, ...]:
    """Return the contracts, without the mutants of suites that have a requested subject.

    These mutants are faults of the suite's own subject.
    """
    return tuple(
        for_other_subject(contract) if contract.id in targets and is_suite(contract) else contract
        for contract in contracts
    )


def read(paths: Sequence[str | Path], project: Project) -> Loaded:
    """Load the contracts that `paths` name (default: all contracts of the project), and findings about their files.

    Other contracts of the project are only loaded to resolve references.
    """
    return load(resolve_names(paths or _folders(project), project).paths, around=project.contracts if paths else ())


def _folders(project: Project) -> tuple[Path, ...]:
    """Return the contract folders of a project. Raise UsageError if one is missing."""
    for path in project.contracts:
        if not os.path.lexists(path):
            raise UsageError(f"no such file or folder: {path}; name a contract, or write a first one with `pv new`")
    return project.contracts


def project_of(paths: Sequence[str | Path]) -> Project:
    """Return the project of the first path if it is declared there, else the project of the working directory."""
    for path in paths[:1]:
        candidate = find_project(Path(path) if is_folder(path) else Path(path).parent)
        if candidate.declared:
            return candidate
    return find_project(Path.cwd())


def _targets(contracts: Sequence[Contract], subjects: Mapping[str, str], project: Project) -> dict[str, Target]:
    by_id = {c.id: c for c in contracts}
    unknown = sorted(set(subjects) - set(by_id))
    if unknown:
        ids = ", ".join(by_id)
        raise UsageError(f"unknown contract {unknown[0]!r} in --subject (choose from {ids or 'none'})")
    # A contract without `subjects` has no subject names to choose from; if the target is invalid, lint reports it.
    return {
        id_: resolve_subject(by_id[id_], text, project) if by_id[id_].subjects else target_of(text)
        for id_, text in subjects.items()
    }


def plan_validation(project: Project, request: Request, before_lint: BeforeLint | None = None) -> Plan:
    """Plan a validation.

    1. Check the request, and resolve ids to files and claims.
    2. Load the files, and remove the mutants of suites that have a requested subject.
    3. Select claims and devices, and divide them into shards.
    4. Lint the selected contracts.

    Args:
        project: The project of the contracts.
        request: The request.
        before_lint: Called with the selected contracts and subjects; workers can start while lint runs.

    Raises:
        UsageError: The request is invalid or contradicts itself.
    """
    _check(request)
    request = _resolved(request, project)
    files = read(request.paths, project)
    targets = _targets(files.contracts, request.subjects, project)
    loaded = _without_suite_mutants(files.contracts, targets)
    for contract in loaded:
        if contract.id in targets and not request.cannot_try_reason:
            must_be_installed(contract, targets[contract.id], project)
    selections: dict[str, Selection] = {}
    for contract in loaded:
        if (selection := _selection(contract, request, targets.get(contract.id))) is not None:
            selections[contract.id] = selection
    requested = tuple(contract for contract in loaded if contract.id in selections)
    if request.shard is not None:
        selections = divide(requested, selections, request.shard)
    contracts = tuple(contract for contract in requested if contract.id in selections)
    # Lint takes longest, so work that can run at the same time is started first.
    if before_lint is not None:
        before_lint(contracts, targets)
    # Only the requested contracts are linted. Loading finds refusals and notices, but no errors.
    findings = (*files.findings, *lint(contracts, project=project, subjects=targets))
    if request.replay:
        _check_replay(contracts, selections, request)
    if request.record and not _recordable(contracts, selections, request):
        raise UsageError("--record writes only proofs and results of devices other than the CPU: add --device cuda")
    refused = any(finding.severity is Severity.REFUSAL for finding in findings)
    unmatched = () if refused and not requested else _unmatched(loaded, request, requested)
    notes = [f"{pattern} matches nothing" for pattern in unmatched]
    if requested or refused:
        notes += _left_out_note(loaded, request)
    else:
        notes = [_nothing_measured(loaded, request)]
    return Plan(
        project=project,
        contracts=contracts,
        findings=findings,
        selections=selections,
        subjects=targets,
        notes=tuple(notes),
        unmatched=unmatched,
    )


def _resolved(request: Request, project: Project) -> Request:
    """Return the request with ids of contracts replaced by files, and ids of claims moved to `only`."""
    arguments = resolve_names(request.paths, project)
    if arguments.claims is None:
        return replace(request, paths=arguments.paths)
    claims = [id_ for id_ in arguments.claims if not request.only or matches(id_, request.only)]
    if not claims:
        raise UsageError(f"--only {' '.join(request.only)} matches none of the named claims")
    return replace(request, paths=arguments.paths, only=tuple(claims))


def _recordable(contracts: Sequence[Contract], selections: Mapping[str, Selection], request: Request) -> bool:
    devices = set(request.devices or ("cpu",))
    proofs = any(engine_of(f).proves and selections[c.id].selects(f) for c in contracts for f in c.claims)
    return bool(devices - {"cpu"}) or proofs


def _check_replay(contracts: Sequence[Contract], selections: Mapping[str, Selection], request: Request) -> None:
    """Raise `UsageError` if the request does not select exactly one claim, or the example does not fit that claim."""
    claims = [
        (contract, claim)
        for contract in contracts
        for claim in contract.claims
        if selections[contract.id].selects(claim)
    ]
    if len(claims) != 1:
        raise UsageError(f"a replay needs exactly one claim, not {len(claims)}: name it with --only")
    contract, claim = claims[0]
    engine_of(claim).check_replay(request.replay, contract, claim)


def _unmatched(contracts: Sequence[Contract], request: Request, requested: Sequence[Contract]) -> tuple[str, ...]:
    """Return the patterns that match nothing, which are probably typos.

    If every pattern matches something but no contract matches all patterns, return all patterns as one text: then
    nothing can be tried, and the result is undecided in every shard. In contrast, a shard that happens to get no claims
    passes.
    """
    claims = [claim.id for contract in contracts for claim in contract.claims]
    unmatched = [f"--only {p}" for p in request.only if not any(fnmatchcase(id_, p) for id_ in claims)]
    unmatched += [f"--contract {p}" for p in request.contracts if not any(fnmatchcase(c.id, p) for c in contracts)]
    if not unmatched and not requested:
        patterns = [*(f"--only {p}" for p in request.only), *(f"--contract {p}" for p in request.contracts)]
        unmatched = [" with ".join(patterns) or "the request"]
    return tuple(unmatched)


def _selection(contract: Contract, request: Request, subject: Target | None) -> Selection | None:
    """Return the requested claims and devices of a contract; None if the request does not select it."""
    if request.contracts and not matches(contract.id, request.contracts):
        return None
    ids = _named_ids(contract, request)
    if request.only and not ids:
        return None
    if _has_no_claim_on_devices(contract, ids, request):
        return None
    return Selection(
        falsifiers=ids if request.only else None,
        devices=tuple(dict.fromkeys(request.devices)) if request.devices else None,
        require=request.require,
        mutants=request.mutants and not request.replay,
        examples=request.examples,
        replay=bool(request.replay),
        not_claimed=contract.not_claimed(subject) if subject is not None else {},
    )


def _named_ids(contract: Contract, request: Request) -> frozenset[str]:
    """Return the ids of the claims that --only matches; all ids without --only."""
    return frozenset(claim.id for claim in contract.claims if not request.only or matches(claim.id, request.only))


def _has_no_claim_on_devices(contract: Contract, ids: frozenset[str], request: Request) -> bool:
    """Return whether the contract has claims with these ids, but none of them on a requested device.

    Return False if devices are required: the contract must then be undecided for lack of evidence.
    """
    if not request.devices or request.require:
        return False
    requested = [claim for claim in contract.claims if claim.id in ids]
    return bool(requested) and not any(set(claim.devices) & set(request.devices) for claim in requested)


def matches(id_: str, patterns: Sequence[str]) -> bool:
    """Return whether an id matches one of the glob patterns."""
    return any(fnmatchcase(id_, pattern) for pattern in patterns)


def _check(request: Request) -> None:
    """Raise `UsageError` for options with invalid values or that contradict each other."""
    for name, value in (("jobs", request.jobs), ("examples", request.examples)):
        if value is not None and value < 1:
            raise UsageError(f"invalid value {value} for {name!r}: expected a positive integer")
    for name in [*(request.devices or ()), *request.require]:
        if name not in DEVICES:
            raise UsageError(f"unknown device {name!r} (choose from {', '.join(DEVICES)})")
    if request.replay:
        refuse_form(request.replay)
    if request.shard is not None and request.replay:
        raise UsageError("--shard does not take --replay")
    # Evidence is recorded for the contract as written; it is not recorded if the request changes subject, examples or
    # seed, or is a replay.
    differs_from_contract = request.replay or request.examples is not None or request.seed or request.subjects
    if request.record and differs_from_contract:
        raise UsageError(
            "--record needs the subject, the examples and the seed of the contract: omit --record, or --subject, "
            "--replay, --examples and --seed"
        )


def _left_out_note(contracts: Sequence[Contract], request: Request) -> list[str]:
    """Return a note about the contracts that are left out because they claim nothing on the requested devices."""
    requested = [c for c in contracts if not request.contracts or matches(c.id, request.contracts)]
    left_out = [c.id for c in requested if _has_no_claim_on_devices(c, _named_ids(c, request), request)]
    if not left_out:
        return []
    return [f"left out, since they claim nothing on {' or '.join(request.devices or ())}: {listed(left_out, FEW)}"]


def _nothing_measured(contracts: Sequence[Contract], request: Request) -> str:
    """Return the note of a request that selects nothing, with the reason."""
    if not contracts:
        return "nothing was measured: no contracts found"
    if _left_out_note(contracts, request):
        return f"nothing was measured: no claim is for {' or '.join(request.devices or ())}"
    noun, patterns = ("claim", request.only) if request.only else ("contract", request.contracts)
    both = request.only and request.contracts
    where = f" in contracts that match {' or '.join(map(repr, request.contracts))}" if both else ""
    if len(contracts) == 1 and request.only and is_suite(contracts[0]):
        return f"no claim matches {' or '.join(map(repr, patterns))}: {claim_hint(contracts[0], patterns[0])}"
    return f"no {noun} matches {' or '.join(map(repr, patterns))}{where} (`pv list` shows all ids)"


def divide(contracts: Iterable[Contract], selections: Mapping[str, Selection], shard: Shard) -> dict[str, Selection]:
    """Return the part of every selection that a shard tries, by id of the contract; empty parts are left out."""
    parts = {contract.id: _part(contract, selections[contract.id], shard) for contract in contracts}
    return {id_: part for id_, part in parts.items() if part is not None}


def _part(contract: Contract, selection: Selection, shard: Shard) -> Selection | None:
    selected = [claim for claim in contract.claims if selection.selects(claim)]
    # Claims that read one run share its key, so that the run is executed in one shard only.
    claims_of_shard = frozenset(
        claim.id for claim in selected if _shard_of(contract.id, claim.run or claim.id, shard.of) == shard.index
    )
    # A contract without claims still has a verdict, in one shard.
    if not claims_of_shard and (selected or _shard_of(contract.id, "", shard.of) != shard.index):
        return None
    return replace(selection, falsifiers=claims_of_shard, divided=True)


def _shard_of(contract: str, name: str, of: int) -> int:
    """Return the shard of a claim or run, by a hash of its name: the same on every machine, in any order."""
    # Not by `hash` of Python, which differs between processes.
    digest = hashlib.sha256(f"{contract} {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % of + 1
