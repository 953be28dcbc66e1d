"""Decide the verdict of a contract, as a pure function of its claims and evidence, and the exit code of a report."""

import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from importlib import metadata
from typing import Any

from pv import __version__
from pv.contract.finding import Finding, Severity
from pv.contract.model import Contract
from pv.engines.registry import engine_of
from pv.engines.trial import TrialStatus
from pv.errors import ExitCode, UsageError
from pv.results.definitions import definitions
from pv.results.evidence import DeviceInfo, Evidence, MutationScore, RunTrace
from pv.results.outcome import Outcome, Result, Selection, claim_results, killed
from pv.results.steps import ObservedStep


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """Part `index` of a validation in `of` parts, counted from 1."""

    index: int
    of: int

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"


def parse_shard(text: str) -> Shard:
    """Return the shard that is written as "K/N". Raise `UsageError` for another text."""
    match = re.fullmatch(r"([0-9]+)/([0-9]+)", text, re.ASCII)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"invalid value {text!r} for 'shard': expected K/N with K from 1 to N, such as 2/4")
    return Shard(int(match[1]), int(match[2]))


def find_missing_shards(shards: Iterable[Shard]) -> tuple[Shard, ...]:
    """Return the shards that are missing from a complete validation."""
    present = {*shards}
    return tuple(sorted({Shard(index, shard.of) for shard in present for index in range(1, shard.of + 1)} - present))


class Status(Enum):
    """The verdict of a contract."""

    FAIL = "fail"
    UNDECIDED = "undecided"
    PASS = "pass"


FAILING = (Outcome.FALSIFIED, Outcome.ERROR, Outcome.VACUOUS)
"""The outcomes that fail a contract if its gate requires the claim, worst first. `FALSIFIED` fails it in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractVerdict:
    """The verdict of one contract, with its results and everything else that decides it.

    Attributes:
        contract: The contract.
        status: The verdict.
        results: The requested results, in the order of the contract.
        findings: Lint findings about the contract.
        killed: Ids of the claimed mutants that were killed in every trial of them; a cancelled trial kills none.
        claimed_mutants: Ids of the mutants that the tried claims name in `kills`; empty if mutants or the CPU were not
            requested.
        partial: Whether some claims of the contract were not selected, or an example was replayed.
        score: The recorded mutation score; None if there is none.
    """

    contract: Contract
    status: Status
    results: tuple[Result, ...]
    findings: tuple[Finding, ...] = ()
    killed: frozenset[str] = frozenset()
    claimed_mutants: frozenset[str] = frozenset()
    untried: int = 0
    """Number of claimed mutants that were not tried.

    Their falsifier failed, their edit does not apply, or the validation was stopped.
    """
    partial: bool = False
    score: MutationScore | None = None
    unclaimed_devices: tuple[str, ...] = ()
    """The required devices on which the contract has no claim, unless its gate leaves the device out."""
    subject: str = ""
    """The requested subject; "" for the contract's own subject."""
    runs: tuple[RunTrace, ...] = ()
    """The traces of the reference runs with their full arguments."""
    repeat: tuple[str, ...] = ("pv validate",)
    """The words of the command that repeats the results."""
    absent: str = ""
    """The reason why the contract was not tried; "" if it was tried."""
    definitions: Mapping[str, Any] | None = None
    """The result of `definitions`: subjects, executable equations, runs and options of claims, with their locations.

    None in a report of an older version.
    """

    def count(self, device: str, *outcomes: Outcome) -> int:
        """Return the number of falsifiers with one of these outcomes on a device."""
        return sum(result.device == device and result.outcome in outcomes for result in self.attacks)

    def total(self, device: str) -> int:
        """Return the number of falsifiers on a device."""
        return sum(result.device == device for result in self.attacks)

    @property
    def attacks(self) -> tuple[Result, ...]:
        """Return the results of falsifiers."""
        return tuple(result for result in self.results if not engine_of(result.falsifier).proves)

    @property
    def proofs(self) -> tuple[Result, ...]:
        """Return the results of proofs."""
        return tuple(result for result in self.results if engine_of(result.falsifier).proves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The verdicts of one validation, worst first, with the findings and the environment.

    Attributes:
        contracts: The verdicts.
        findings: Findings about all contract files.
        devices: The devices on which claims were tried, by name.
        seed: The seed of the examples.
        seconds: Duration in seconds of wall time.
        started: Start of the validation (ISO 8601).
        version: The version of `pv`.
        python: The version of Python.
        hypothesis: The version of Hypothesis.
        notes: Texts for the reader.
        interrupted: Whether Ctrl-C ended the validation.
        unmatched: Patterns of the request that match nothing.
    """

    contracts: tuple[ContractVerdict, ...]
    findings: tuple[Finding, ...] = ()
    devices: Mapping[str, DeviceInfo] = field(default_factory=dict)
    seed: int = 0
    seconds: float = 0.0
    started: str = ""
    version: str = __version__
    python: str = field(default_factory=platform.python_version)
    hypothesis: str = field(default_factory=partial(metadata.version, "hypothesis"))
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    unmatched: tuple[str, ...] = ()
    commit: str = ""
    """The commit that was tested, with a plus sign if files were changed; "" without git."""
    edits: str | None = None
    """The digest of the uncommitted changes; "" without changes, None if unknown."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The digests of the project files that trials read, by path below the root."""
    project: Mapping[str, str] = field(default_factory=dict)
    """The path of every contract of the project by id, including contracts that were not selected."""
    shards: tuple[Shard, ...] = ()
    """The shards in this report; () for an undivided validation."""
    missing: tuple[Shard, ...] = ()
    """The shards whose reports were not among the merged reports."""
    steps: tuple[ObservedStep, ...] = ()
    """The steps of an observed run; () for a validation."""
    closing: str = ""
    """The last line of the report of an observed run; "" for a validation."""

    @property
    def exit_code(self) -> ExitCode:
        """Return the worst exit code of the contracts, the findings and an interrupt.

        The report is at least undecided if nothing was measured, a pattern matches nothing, or a shard is missing.
        """
        statuses = {verdict.status for verdict in self.contracts}
        severities = {finding.severity for finding in self.findings}
        # An empty shard is not undecided: with more shards than claims, some shards have nothing to try.
        measured = bool(statuses or self.shards)
        return ExitCode.worst(
            interrupted=self.interrupted,
            refused=Severity.REFUSAL in severities,
            failed=Status.FAIL in statuses or Severity.ERROR in severities,
            undecided=not measured or Status.UNDECIDED in statuses or bool(self.unmatched or self.missing),
        )


def decide(
    contract: Contract, evidence: Evidence, selection: Selection, findings: tuple[Finding, ...] = ()
) -> ContractVerdict:
    """Decide the verdict of one contract.

    Args:
        contract: The contract.
        evidence: Trials that ran now, recorded results and the mutation score.
        selection: The requested claims and devices.
        findings: Lint findings about the contract; an error fails it, because its claims could not be tried.
    """
    results = tuple(claim_results(contract, evidence, selection))
    selected = [claim for claim in contract.claims if selection.selects(claim)]
    tried = [claim for claim in selected if selection.runs(claim)]
    # Mutants are tried on the CPU only.
    on_mutants = tried if "cpu" in selection.active_devices and selection.mutants else []
    claimed_mutants = {mutant for claim in on_mutants for mutant in claim.kills}
    # A replay decides one example, never a contract.
    partial = selection.replay or len(selected) < len(contract.claims)
    # The gate may leave out a required device on which the contract has no claim.
    required = selection.require & {*contract.gate.devices} if contract.gate.devices else selection.require
    unclaimed_devices = tuple(sorted(required - {device for claim in contract.claims for device in claim.devices}))
    # A mutant that several falsifiers name counts as killed only if every one of them killed it.
    trials = [(mutant, trial) for (_, mutant), trial in evidence.mutants.items()]
    survived = {mutant for mutant, trial in trials if not killed(trial)}
    judged = {mutant for mutant, trial in trials if trial.status is not TrialStatus.CANCELLED}
    return ContractVerdict(
        contract=contract,
        status=status_of(
            contract,
            results,
            findings,
            evidence.score,
            unclaimed_devices,
            whole=not partial,
            sharded=partial and selection.divided,
        ),
        results=results,
        findings=findings,
        killed=frozenset((judged - survived) & claimed_mutants),
        claimed_mutants=frozenset(claimed_mutants),
        untried=len(claimed_mutants - judged),
        partial=partial,
        score=evidence.score,
        unclaimed_devices=unclaimed_devices,
        runs=evidence.runs,
        definitions=definitions(contract),
    )


def status_of(
    contract: Contract,
    results: tuple[Result, ...],
    findings: tuple[Finding, ...],
    score: MutationScore | None,
    unclaimed_devices: tuple[str, ...],
    *,
    whole: bool,
    sharded: bool = False,
) -> Status:
    """Decide the status of a contract from its results.

    Args:
        contract: The contract with its gate.
        results: The results of its claims.
        findings: Lint findings about the contract.
        score: The recorded mutation score.
        unclaimed_devices: Required devices on which the contract has no claim.
        whole: Whether every claim of the contract was selected; only then is the mutation score required.
        sharded: Whether other shards try the remaining claims; the results may then have no claim that the gate
            requires.
    """
    required = [result for result in results if result.required]
    # A refuted claim fails the contract even if the gate does not require the claim: the code is wrong.
    failing = [result for result in required if result.outcome in FAILING]
    failing += [result for result in results if result.outcome is Outcome.FALSIFIED]
    if any(finding.severity is not Severity.NOTICE for finding in findings) or failing:
        return Status.FAIL
    undecided = any(result.outcome is Outcome.UNDECIDED for result in required) or not (required or sharded)
    least = contract.gate.mutation_score
    if whole and least is not None:
        # A missing, stale or sampled score is undecided.
        if score is None or score.changed or score.value is None or score.is_sample:
            undecided = True
        elif score.value < least:
            return Status.FAIL
    return Status.UNDECIDED if undecided or unclaimed_devices else Status.PASS
