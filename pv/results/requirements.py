"""Describe the requirements that a contract, or a whole validation, does not meet."""

from collections.abc import Iterator

from pv.contract.finding import Severity
from pv.contract.wording import count, listed
from pv.results.outcome import Outcome, Result
from pv.results.verdict import FAILING, ContractVerdict, Report, Status

NOTHING_MEASURED = "nothing that the gate requires was measured"
INTERRUPTED = "interrupted: claims that had not run are undecided"


def unmet_requirements(verdict: ContractVerdict) -> tuple[str, ...]:
    """Return the reasons why a contract does not pass, worst first; () if it passes."""
    if verdict.status is Status.PASS:
        return ()
    return (*_result_reasons(verdict), *_contract_reasons(verdict)) or (NOTHING_MEASURED,)


def unmet_by_contract(verdict: ContractVerdict) -> tuple[str, ...]:
    """Return the reasons why a contract does not pass, except its results and findings.

    Use it in formats that list every result and every finding, so that no fault is listed twice.
    """
    if verdict.status is Status.PASS or any(_result_reasons(verdict)):
        return tuple(_contract_reasons(verdict))
    return unmet_requirements(verdict)


def _result_reasons(verdict: ContractVerdict) -> Iterator[str]:
    """Yield the reasons that are results or findings."""
    errors = sum(finding.severity is not Severity.NOTICE for finding in verdict.findings)
    if errors:
        yield count(errors, "lint error")
    for outcome in (*FAILING, Outcome.UNDECIDED):
        blocking = [r for r in verdict.results if r.outcome is outcome and blocks_gate(r)]
        names = [r.falsifier.id if r.falsifier.is_of_script else f"{r.falsifier.id} on {r.device}" for r in blocking]
        if names:
            yield f"{outcome.value}: {listed(names)}"


def _contract_reasons(verdict: ContractVerdict) -> Iterator[str]:
    """Yield the reasons that concern the contract as a whole, such as its mutation score."""
    if verdict.absent:
        yield verdict.absent
    yield from _score_reasons(verdict)
    yield from (f"nothing claimed on {device}" for device in verdict.unclaimed_devices)


def blocks_gate(result: Result) -> bool:
    """Return whether a result keeps its contract from passing.

    A falsified claim always does, even if the gate does not require the claim.
    """
    if result.outcome is Outcome.FALSIFIED:
        return True
    return result.required and result.outcome in (*FAILING, Outcome.UNDECIDED)


def _score_reasons(verdict: ContractVerdict) -> Iterator[str]:
    """Yield the reasons why the recorded mutation score does not fulfil the gate."""
    least, score = verdict.contract.gate.mutation_score, verdict.score
    if least is None or verdict.partial:
        return
    requirement = f"the gate requires a mutation score of {least * 100:g} %"
    if score is None or score.value is None:
        yield f"{requirement}, none is recorded"
    elif score.changed:
        yield f"{requirement}, the recorded score is stale"
    elif score.is_sample:
        yield f"{requirement}, the recorded score is of a sample"
    elif score.value < least:
        yield f"{requirement}, the recorded score is {score.percent}"


def unmet_by_report(report: Report) -> tuple[str, ...]:
    """Return the reasons why a validation does not pass, except the reasons of single contracts."""
    reasons = [INTERRUPTED] if report.interrupted else []
    reasons += [f"shard {shard} is in none of the reports" for shard in report.missing]
    if not report.contracts and not report.shards:
        reasons.append("nothing was measured: no contract was tried")
    return (*reasons, *(f"{pattern} matches nothing" for pattern in report.unmatched))
