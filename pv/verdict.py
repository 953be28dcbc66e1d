"""What follows from the evidence. Pure: the same claims and evidence give the same verdict, wherever they came from."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from pv.cells import Cell, Outcome, Selection, killed
from pv.cells import cells as cells_of
from pv.evidence import DeviceInfo, Ending, Evidence, MutationScore
from pv.model import Contract, Finding, Harness, Severity


class Status(Enum):
    """The verdict of a contract."""

    FAIL = "fail"
    UNDECIDED = "undecided"
    PASS = "pass"


FAILING = {Outcome.FALSIFIED, Outcome.ERROR, Outcome.VACUOUS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractVerdict:
    """The verdict of one contract, with all that it rests on."""

    contract: Contract
    status: Status
    cells: tuple[Cell, ...]
    findings: tuple[Finding, ...] = ()
    killed: frozenset[str] = frozenset()
    claimed: frozenset[str] = frozenset()
    untried: int = 0
    """How many of the claimed mutants were not tried: a falsifier that failed needs none, some edits don't apply."""
    partial: bool = False
    score: MutationScore | None = None
    subject: str = ""
    """What was attacked in the place of the contract's own subject; "" where nothing stood in."""

    def count(self, device: str, *outcomes: Outcome) -> int:
        return sum(cell.device == device and cell.outcome in outcomes for cell in self.attacks)

    def total(self, device: str) -> int:
        return sum(cell.device == device for cell in self.attacks)

    @property
    def attacks(self) -> tuple[Cell, ...]:
        """The cells of falsifiers."""
        return tuple(cell for cell in self.cells if not isinstance(cell.falsifier, Harness))

    @property
    def proofs(self) -> tuple[Cell, ...]:
        """The cells of harnesses."""
        return tuple(cell for cell in self.cells if isinstance(cell.falsifier, Harness))


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
    repeat: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """130 interrupted; else, worst first, 3 refused, 1 failed, 2 undecided or nothing measured, 0 passed."""
        if self.interrupted:
            return 130
        statuses = {verdict.status for verdict in self.contracts}
        if any(finding.severity is Severity.REFUSAL for finding in self.findings):
            return 3
        if Status.FAIL in statuses or any(finding.severity is Severity.ERROR for finding in self.findings):
            return 1
        return 0 if statuses == {Status.PASS} and not self.unmatched else 2


def decide(
    contract: Contract, evidence: Evidence, selection: Selection, findings: tuple[Finding, ...] = ()
) -> ContractVerdict:
    """The verdict of one contract. Lint errors among `findings` fail it: it would claim what nothing attacks."""
    cells = tuple(cells_of(contract, evidence, selection))
    selected = [f for f in contract.claims if selection.takes(f)]
    tried = [f for f in selected if selection.tries(f)]
    claimed = {m for f in tried for m in f.kills} if "cpu" in selection.live and selection.mutants else set()
    survived = {key[1] for key, trial in evidence.mutants.items() if not killed(trial)}
    judged = {key[1] for key, trial in evidence.mutants.items() if trial.ending is not Ending.CANCELLED}
    return ContractVerdict(
        contract=contract,
        status=_with_score(contract, evidence, selection, _status(cells, findings)),
        cells=cells,
        findings=findings,
        killed=frozenset((judged - survived) & claimed),
        claimed=frozenset(claimed),
        untried=len(claimed - judged),
        partial=len(selected) < len(contract.claims),
        score=evidence.score,
    )


def _with_score(contract: Contract, evidence: Evidence, selection: Selection, status: Status) -> Status:
    """The status once the gate has looked at the recorded mutation score: of a whole contract, and of all mutants."""
    least, score = contract.gate.mutation_score, evidence.score
    if least is None or selection.falsifiers is not None or status is Status.FAIL:
        return status
    if score is None or score.changed or score.value is None or score.sample:
        return Status.UNDECIDED
    return Status.FAIL if score.value < least else status


def _status(cells: tuple[Cell, ...], findings: tuple[Finding, ...]) -> Status:
    if any(finding.severity is not Severity.NOTICE for finding in findings):
        return Status.FAIL
    required = [cell for cell in cells if cell.required]
    # A refutation is a fact about the code, whatever the gate asks for.
    if any(cell.outcome in FAILING for cell in required) or any(c.outcome is Outcome.FALSIFIED for c in cells):
        return Status.FAIL
    if not required or any(cell.outcome is Outcome.UNDECIDED for cell in required):
        return Status.UNDECIDED
    return Status.PASS
