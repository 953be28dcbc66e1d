"""What is known about a claim, a mutant or a contract, for `pv explain`."""

from dataclasses import dataclass

from pv.contract.finding import Finding, Location
from pv.contract.model import Contract, Falsifier, Mutant
from pv.results.outcome import Result
from pv.results.trial import MutationScore, Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """The explanation of a claim (`claim` is set), of a mutant (`mutant` is set), or of a whole contract.

    Attributes:
        contract: The contract.
        claim: The claim.
        mutant: The mutant.
        test: Location and first line of the docstring of the claim's function.
        recorded: Results of the claim in the evidence folder.
        last: Start time of the validation of a saved report, and the result of the claim in that report.
        score: The recorded mutation score of the contract.
        findings: Lint findings.
        same: Ids of claims of another suite with the same meaning.
        judged: Rows of label and text for a claim about a script: the fault it looks for, and when it is not reached.
    """

    contract: Contract
    claim: Falsifier | None = None
    mutant: Mutant | None = None
    test: tuple[Location, str] | None = None
    recorded: tuple[Recorded, ...] = ()
    last: tuple[tuple[str, Result], ...] = ()
    score: MutationScore | None = None
    findings: tuple[Finding, ...] = ()
    same: tuple[str, ...] = ()
    judged: tuple[tuple[str, str], ...] = ()
