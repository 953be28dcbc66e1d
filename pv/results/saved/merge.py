"""Merge reports of one commit, about different contracts, claims or devices, into one report of the whole project."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import TypeVar

from pv.contract.finding import Location
from pv.contract.model import Contract, Falsifier
from pv.engines.trial import TrialStatus
from pv.errors import UsageError
from pv.results.evidence import DeviceInfo
from pv.results.outcome import Outcome, Result, in_gate
from pv.results.verdict import ContractVerdict, Report, Status, find_missing_shards, status_of

T = TypeVar("T")
UNCOMPARED = "the reports have uncommitted changes, and it is unknown whether these are the same"
NO_COMMIT = "some reports have no commit: only files that were read by trials of at least two reports were compared"
UNKNOWN = "unknown"
"""The digest of uncommitted changes that a report does not have."""
ABSENT = "in none of the reports"


def merge(reports: Mapping[str, Report], *, partial: bool = False) -> Report:
    """Merge reports of one commit.

    A claim may have several results on a device. Measured results take precedence over recorded results, and both over
    claims that were not tried; of the remaining results, the worst is used. A missing shard always leaves the report
    undecided.

    Args:
        reports: Reports by the name of their file.
        partial: Accept that contracts of the project, or claims of a contract, are in no report. By default they are
            undecided.

    Raises:
        UsageError: There is no report, or the reports have different commits, uncommitted changes, files, versions of a
            contract, or numbers of shards, or their shards have different seeds.
    """
    if not reports:
        raise UsageError("no report given")
    _check_commits(reports)
    _check_edits(reports)
    _check_files(reports)
    _check_shards(reports)
    contracts = [merge_verdicts(same) for same in _by_contract(reports)]
    if not partial:
        contracts = [with_missing_claims(verdict, ABSENT) for verdict in contracts]
        contracts += _absent(contracts, reports.values())
    shards = tuple(sorted({shard for report in reports.values() for shard in report.shards}))
    contracts.sort(key=lambda verdict: (list(Status).index(verdict.status), verdict.contract.id))
    first = next(iter(reports.values()))
    return replace(
        first,
        contracts=tuple(contracts),
        findings=_unique(finding for report in reports.values() for finding in report.findings),
        devices=_devices(reports.values()),
        seconds=sum(report.seconds for report in reports.values()),
        started=min(report.started for report in reports.values()),
        notes=_unique((*_differences(reports.values()), *(n for report in reports.values() for n in report.notes))),
        steps=tuple(step for report in reports.values() for step in report.steps),
        interrupted=any(report.interrupted for report in reports.values()),
        shards=shards,
        missing=find_missing_shards(shards),
        unmatched=_unique(pattern for report in reports.values() for pattern in report.unmatched),
        files={name: digest for report in reports.values() for name, digest in report.files.items()},
        project={id_: path for report in reports.values() for id_, path in report.project.items()},
    )


def _check_commits(reports: Mapping[str, Report]) -> None:
    """Raise `UsageError` if two reports have different commits."""
    commits = {name: report.commit.removesuffix("+") for name, report in reports.items() if report.commit}
    # Reports made without git have no commit: `_check_files` compares them.
    (first, commit), *rest = commits.items() or [("", "")]
    for name, other in rest:
        if other != commit:
            raise UsageError(
                f"{first} is of commit {commit[:12]} and {name} of {other[:12]}: merge reports of one commit"
            )


def _check_edits(reports: Mapping[str, Report]) -> None:
    """Raise `UsageError` if two trees have different uncommitted changes."""
    edits_by_file = {name: _edits(report) for name, report in reports.items() if report.commit}
    for (first, one), (second, other) in combinations(edits_by_file.items(), 2):
        # Unknown changes may equal other changes, but not a tree without changes.
        if one != other and (UNKNOWN not in (one, other) or "" in (one, other)):
            raise UsageError(f"{first} and {second} have different changes to one commit: merge reports of one tree")


def _check_files(reports: Mapping[str, Report]) -> None:
    """Raise `UsageError` if trials read different versions of a file, whether git tracks it or not."""
    for (first, one), (second, other) in combinations(reports.items(), 2):
        differing = sorted(name for name in one.files.keys() & other.files if one.files[name] != other.files[name])
        if differing:
            raise UsageError(
                f"{first} and {second} are of different files: {', '.join(differing)}; merge reports of one tree"
            )


def _check_shards(reports: Mapping[str, Report]) -> None:
    """Raise `UsageError` if the shards have different numbers of parts or different seeds."""
    shards = [(name, report.seed, shard) for name, report in reports.items() for shard in report.shards]
    for (first, seed, one), (name, other_seed, other) in pairwise(shards):
        if one.of != other.of:
            raise UsageError(
                f"{first} is shard {one} and {name} is shard {other}: "
                "merge only shards of the same division (the same N in K/N)"
            )
        if seed != other_seed:
            raise UsageError(
                f"shard {one} in {first} has seed {seed} and shard {other} in {name} has {other_seed}: "
                "merge shards of one seed"
            )


def _edits(report: Report) -> str:
    """Return the digest of the uncommitted changes; "" if there are none, `UNKNOWN` if the report lacks it."""
    if not report.commit.endswith("+"):
        return ""
    return UNKNOWN if report.edits is None else report.edits


def _by_contract(reports: Mapping[str, Report]) -> list[list[ContractVerdict]]:
    """Group the verdicts by contract and subject. Raise `UsageError` for different versions of a contract."""
    verdicts: dict[tuple[str, str], list[tuple[str, ContractVerdict]]] = {}
    for name, report in reports.items():
        # Leave out the contracts that a merged report lacks: `_absent` adds those that all reports lack.
        for verdict in (verdict for verdict in report.contracts if verdict.absent != ABSENT):
            verdicts.setdefault((verdict.contract.id, verdict.subject), []).append((name, verdict))
    for (first, one), *rest in verdicts.values():
        for name, other in rest:
            redefined = None not in (one.definitions, other.definitions) and one.definitions != other.definitions
            if _clauses(one.contract) != _clauses(other.contract) or redefined:
                raise UsageError(f"{first} and {name} hold different versions of contract {one.contract.id!r}")
    return [[verdict for _, verdict in same] for same in verdicts.values()]


def _clauses(contract: Contract) -> tuple[object, ...]:
    """Return the parts of a contract that must be equal in all reports."""
    return contract.version, contract.falsifiers, contract.harnesses, contract.mutants, contract.gate


def _absent(contracts: Sequence[ContractVerdict], reports: Iterable[Report]) -> list[ContractVerdict]:
    """Return an undecided verdict for every contract of the project that is in no report with its own subject."""
    present = {verdict.contract.id for verdict in contracts if not verdict.subject}
    project = {id_: path for report in reports for id_, path in report.project.items() if id_ not in present}
    return [
        ContractVerdict(
            contract=Contract(id=id_, version="", description="", location=Location(Path(path)), strict=True),
            status=Status.UNDECIDED,
            results=(),
            absent=ABSENT,
        )
        for id_, path in project.items()
    ]


def _devices(reports: Iterable[Report]) -> dict[str, DeviceInfo]:
    """Return the devices by name; the descriptions of one device on several machines are joined by "and"."""
    infos: dict[str, list[DeviceInfo]] = {}
    for report in reports:
        for name, info in report.devices.items():
            infos.setdefault(name, []).append(info)
    return {
        name: DeviceInfo(
            name=" and ".join(_unique(info.name for info in same if info.name)),
            torch=" and ".join(_unique(info.torch for info in same if info.torch)),
        )
        for name, same in infos.items()
    }


def _differences(reports: Iterable[Report]) -> list[str]:
    """Return notes: the versions and seeds in which the reports differ, and trees that could not be compared."""
    all_reports = list(reports)
    unknown = [report for report in all_reports if report.commit and _edits(report) == UNKNOWN]
    values = {
        "versions of pv": _unique(report.version for report in all_reports),
        "versions of Python": _unique(report.python for report in all_reports),
        "versions of Hypothesis": _unique(report.hypothesis for report in all_reports),
        "seeds": _unique(str(report.seed) for report in all_reports),
    }
    notes = [
        f"the reports have different {noun}: {', '.join(distinct)}"
        for noun, distinct in values.items()
        if len(distinct) > 1
    ]
    notes += [NO_COMMIT] if len(all_reports) > 1 and not all(report.commit for report in all_reports) else []
    return notes + ([UNCOMPARED] if unknown and len(all_reports) > 1 else [])


def _unique(items: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(items))


UNJUDGED = "its mutants were not tried"
FEWER = "it was tried on fewer examples than its contract asks for"
NOT_TRIED = (TrialStatus.CANCELLED, TrialStatus.SKIPPED)


def merge_verdicts(verdicts: Sequence[ContractVerdict]) -> ContractVerdict:
    """Merge verdicts of one contract and subject."""
    first, *rest = verdicts
    if not rest:
        return first
    results_by_key: dict[tuple[str, str], list[Result]] = {}
    for result in (result for verdict in verdicts for result in verdict.results):
        results_by_key.setdefault((result.falsifier.id, result.device), []).append(result)
    results = _in_order(first.contract, map(_worst, results_by_key.values()))
    judged = {t.mutant for result in results for t in result.mutants if t.status is not TrialStatus.CANCELLED}
    claimed_mutants = frozenset(mutant for verdict in verdicts for mutant in verdict.claimed_mutants)
    # A mutant counts as killed if it was killed in every report in which a claim says that it kills the mutant.
    missed = {mutant for verdict in verdicts for mutant in verdict.claimed_mutants - verdict.killed}
    equations = tuple({e.name: e for verdict in verdicts for e in verdict.contract.equations}.values())
    verdict = replace(
        first,
        contract=replace(first.contract, equations=equations),
        results=results,
        findings=tuple(dict.fromkeys(finding for verdict in verdicts for finding in verdict.findings)),
        killed=claimed_mutants - missed,
        claimed_mutants=claimed_mutants,
        untried=len(claimed_mutants - judged),
        partial=bool(_unselected(first.contract, results)),
        score=next((verdict.score for verdict in verdicts if verdict.score is not None), None),
        unclaimed_devices=tuple(sorted({device for verdict in verdicts for device in verdict.unclaimed_devices})),
        runs=tuple({(run.run, run.device): run for verdict in verdicts for run in verdict.runs}.values()),
        absent="",
    )
    return _with_status(verdict)


def with_missing_claims(verdict: ContractVerdict, reason: str) -> ContractVerdict:
    """Return the verdict with an undecided result for everything that was not measured as the contract requires.

    1. Claims that have no result on a device that the gate requires, or no result at all, whether or not the gate
       requires the claim.
    2. Claims whose mutants were not tried, and claims that were tried on fewer examples than the contract requires.

    Args:
        verdict: The merged verdict.
        reason: The reason of the results that are added for claims of the first kind.
    """
    contract = verdict.contract
    results = []
    for result in verdict.results:
        why = UNJUDGED if result.unjudged else FEWER if result.fewer else ""
        results.append(replace(result, outcome=Outcome.UNDECIDED, reason=why) if why else result)
    for claim, device in _missing(contract, verdict.results):
        required = in_gate(contract, claim)
        results.append(
            Result(falsifier=claim, device=device, outcome=Outcome.UNDECIDED, reason=reason, required=required)
        )
    return _with_status(replace(verdict, results=_in_order(contract, results), partial=False))


def _with_status(verdict: ContractVerdict) -> ContractVerdict:
    """Return the verdict with the status that follows from its results."""
    whole = not verdict.partial
    status = status_of(
        verdict.contract, verdict.results, verdict.findings, verdict.score, verdict.unclaimed_devices, whole=whole
    )
    return replace(verdict, status=status)


def _worst(results: Sequence[Result]) -> Result:
    """Return the worst of the results of a claim on a device that have the best evidence."""
    # A result that was not tried must not hide a record, and a record must not hide a measured failure.
    best = max(map(_weight, results))
    candidates = [result for result in results if _weight(result) == best]
    worst = min(candidates, key=lambda result: (list(Outcome).index(result.outcome), result.unjudged + result.fewer))
    return replace(worst, required=any(result.required for result in results))


def _weight(result: Result) -> int:
    """Return 2 for a measured result, 1 for a recorded result, 0 for a claim that was not tried."""
    if result.trial is not None and result.trial.status not in NOT_TRIED:
        return 2
    return int(result.recorded is not None)


def _in_order(contract: Contract, results: Iterable[Result]) -> tuple[Result, ...]:
    """Return results in the order of the contract's claims and their devices."""
    places = {claim.id: place for place, claim in enumerate(contract.claims)}
    return tuple(sorted(results, key=lambda r: (places[r.falsifier.id], r.falsifier.devices.index(r.device))))


def _unselected(contract: Contract, results: Iterable[Result]) -> list[Falsifier]:
    """Return the claims without a result on any device."""
    present = {result.falsifier.id for result in results}
    return [claim for claim in contract.claims if claim.id not in present]


def _missing(contract: Contract, results: Sequence[Result]) -> Iterator[tuple[Falsifier, str]]:
    """Yield claims and devices without a result, if the gate requires the device or the claim has no result at all."""
    present = {(result.falsifier.id, result.device) for result in results}
    not_claimed_ids = {result.falsifier.id for result in results if result.outcome is Outcome.NOT_CLAIMED}
    unselected = _unselected(contract, results)
    # A gate requires its claims on its `fresh` devices, and on the CPU unless its `devices` leave the CPU out.
    gate = contract.gate
    required = gate.fresh | {"cpu"} if not gate.devices or "cpu" in gate.devices else gate.fresh
    for claim in contract.claims:
        devices = tuple(device for device in claim.devices if device in required)
        # A claim that no report selected is listed once, even if the gate requires it on no device.
        if claim in unselected:
            devices = devices or claim.devices[:1]
        if claim.id not in not_claimed_ids:
            yield from ((claim, device) for device in devices if (claim.id, device) not in present)
