"""The information about a claim, a mutant or a contract that `pv explain` prints."""

from dataclasses import dataclass

from pv.contract.finding import Finding, Location
from pv.contract.model import Contract, Falsifier, Mutant
from pv.results.evidence import MutationScore, Recorded
from pv.results.outcome import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """The explanation of a claim (`claim` is set), of a mutant (`mutant` is set), or of a whole contract.

    Attributes:
        contract: The contract.
        claim: The claim; None in an explanation of a mutant or of a contract.
        mutant: The mutant; None in an explanation of a claim or of a contract.
        test: Location of the claim's function, and the first line of its docstring.
        recorded: Results of the claim in the evidence folder.
        last_results: Results of the claim in a saved report, each with the start time of its validation.
        score: The recorded mutation score of the contract.
        findings: Lint findings.
        same_claims: Ids of the claims of another suite with the same meaning.
        script_rows: For a claim about a script, rows of label and text: the fault that the claim looks for, and when
            the claim is not reached.
    """

    contract: Contract
    claim: Falsifier | None = None
    mutant: Mutant | None = None
    test: tuple[Location, str] | None = None
    recorded: tuple[Recorded, ...] = ()
    last_results: tuple[tuple[str, Result], ...] = ()
    score: MutationScore | None = None
    findings: tuple[Finding, ...] = ()
    same_claims: tuple[str, ...] = ()
    script_rows: tuple[tuple[str, str], ...] = ()
