"""Decides the verdict of a contract, as a pure function of its claims and evidence."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pv.contract.finding import Finding, Severity
from pv.contract.model import Contract
from pv.engines.registry import engine_of
from pv.errors import ExitCode
from pv.results.definitions import definitions
from pv.results.outcome import Outcome, Result, Selection, claim_results, killed
from pv.results.shard import Shard
from pv.results.steps import ObservedStep
from pv.results.trial import DeviceInfo, Evidence, MutationScore, RunTrace, TrialStatus


class Status(Enum):
    """The verdict of a contract."""

    FAIL = "fail"
    UNDECIDED = "undecided"
    PASS = "pass"


FAILING = {Outcome.FALSIFIED, Outcome.ERROR, Outcome.VACUOUS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractVerdict:
    """The verdict of one contract, with all that it depends on."""

    contract: Contract
    status: Status
    results: tuple[Result, ...]
    findings: tuple[Finding, ...] = ()
    killed: frozenset[str] = frozenset()
    claimed: frozenset[str] = frozenset()
    untried: int = 0
    """Number of claimed mutants that were not tried: their falsifier failed, or their edit does not apply."""
    partial: bool = False
    score: MutationScore | None = None
    unclaimed: tuple[str, ...] = ()
    """The required devices on which the contract claims nothing, although its gate does not leave them out."""
    subject: str = ""
    """The subject that replaced the contract's own; "" for its own."""
    runs: tuple[RunTrace, ...] = ()
    """The traces of its reference runs, at their full size."""
    repeat: tuple[str, ...] = ("pv validate",)
    """The words of the command that repeats its results."""
    absent: str = ""
    """The reason why nothing is known of the contract; "" if it was tried."""
    definitions: Mapping[str, Any] | None = None
    """Its subjects, executable equations and runs; None in a report of an older version."""

    def count(self, device: str, *outcomes: Outcome) -> int:
        return sum(result.device == device and result.outcome in outcomes for result in self.attacks)

    def total(self, device: str) -> int:
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
    """Everything that one validation found, worst first."""

    contracts: tuple[ContractVerdict, ...]
    findings: tuple[Finding, ...]
    devices: Mapping[str, DeviceInfo]
    seed: int
    seconds: float
    started: str
    version: str
    python: str
    hypothesis: str
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    unmatched: tuple[str, ...] = ()
    commit: str = ""
    """The commit that was tested, with a plus sign if files were changed; "" without git."""
    edits: str | None = None
    """The digest of the files that were changed; "" if none was, None if it is not known."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The digests of the project's files that its trials read, by their paths below the root."""
    project: Mapping[str, str] = field(default_factory=dict)
    """The path of every contract of the project by id, those that were not selected included."""
    shards: tuple[Shard, ...] = ()
    """The parts of a validation that it holds; () for one that was not divided."""
    missing: tuple[Shard, ...] = ()
    """The parts that lack when reports are merged."""
    steps: tuple[ObservedStep, ...] = ()
    """The steps of an observed run; () for a validation."""
    closing: str = ""
    """The last line of the report of an observed run; "" for a validation."""

    @property
    def exit_code(self) -> ExitCode:
        """Return the worst code that a contract or a finding gives; nothing measured is undecided."""
        statuses = {verdict.status for verdict in self.contracts}
        severities = {finding.severity for finding in self.findings}
        # An empty shard is not undecided: with more shards than claims, some have nothing to try.
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
    """Return the verdict of one contract. Lint errors among `findings` fail it: its claims could not be tried."""
    results = tuple(claim_results(contract, evidence, selection))
    selected = [f for f in contract.claims if selection.selects(f)]
    attacked = [f for f in selected if selection.runs(f)]
    claimed = {m for f in attacked for m in f.kills} if "cpu" in selection.live and selection.mutants else set()
    partial = selection.replay or len(selected) < len(contract.claims)
    unclaimed = tuple(sorted(_unclaimed(contract, selection)))
    survived = {key[1] for key, trial in evidence.mutants.items() if not killed(trial)}
    judged = {key[1] for key, trial in evidence.mutants.items() if trial.status is not TrialStatus.CANCELLED}
    return ContractVerdict(
        contract=contract,
        status=status_of(
            contract,
            results,
            findings,
            evidence.score,
            unclaimed,
            whole=not partial,
            elsewhere=partial and selection.divided,
        ),
        results=results,
        findings=findings,
        killed=frozenset((judged - survived) & claimed),
        claimed=frozenset(claimed),
        untried=len(claimed - judged),
        partial=partial,
        score=evidence.score,
        unclaimed=unclaimed,
        runs=evidence.runs,
        definitions=definitions(contract),
    )


def status_of(
    contract: Contract,
    results: tuple[Result, ...],
    findings: tuple[Finding, ...],
    score: MutationScore | None,
    unclaimed: tuple[str, ...],
    *,
    whole: bool,
    elsewhere: bool = False,
) -> Status:
    """Return the status that follows from the results.

    whole: no claim of the contract was left out. elsewhere: those that were are tried in another shard.
    """
    status = _status(results, findings, elsewhere=elsewhere)
    if whole and status is not Status.FAIL:
        status = _with_score(contract.gate.mutation_score, score, status)
    return Status.UNDECIDED if unclaimed and status is Status.PASS else status


def _unclaimed(contract: Contract, selection: Selection) -> set[str]:
    """Return the required devices on which no claim is made, but for those that the gate leaves out."""
    claimed = {device for claim in contract.claims for device in claim.devices}
    excused = selection.require - set(contract.gate.devices) if contract.gate.devices else set()
    return set(selection.require) - claimed - excused


def _with_score(least: float | None, score: MutationScore | None, status: Status) -> Status:
    """Return the status after the gate on the recorded mutation score."""
    if least is None:
        return status
    if score is None or score.changed or score.value is None or score.sample:
        return Status.UNDECIDED
    return Status.FAIL if score.value < least else status


def _status(results: tuple[Result, ...], findings: tuple[Finding, ...], *, elsewhere: bool) -> Status:
    if any(finding.severity is not Severity.NOTICE for finding in findings):
        return Status.FAIL
    required = [result for result in results if result.required]
    # A refutation is a fact about the code, whatever the gate asks for.
    if any(result.outcome in FAILING for result in required) or any(r.outcome is Outcome.FALSIFIED for r in results):
        return Status.FAIL
    if not (required or elsewhere) or any(result.outcome is Outcome.UNDECIDED for result in required):
        return Status.UNDECIDED
    return Status.PASS
