"""Describe the requirements that a contract, or a whole validation, does not meet."""

from collections.abc import Iterator, Sequence

from pv.contract.finding import Severity
from pv.contract.wording import count, listed
from pv.results.outcome import Outcome, Result
from pv.results.verdict import FAILING, ContractVerdict, Report, Status

NOTHING_MEASURED = "nothing that the gate requires was measured"


def unmet(verdict: ContractVerdict) -> tuple[str, ...]:
    """Return the reasons why a contract does not pass, worst first; () if it passes."""
    if verdict.status is Status.PASS:
        return ()
    return (*_of_parts(verdict), *_of_the_whole(verdict)) or (NOTHING_MEASURED,)


def unmet_by_the_whole(verdict: ContractVerdict) -> tuple[str, ...]:
    """Return the reasons why a contract does not pass that are neither results nor findings.

    Formats that list every result and finding use these, so that one fault does not count twice.
    """
    if verdict.status is Status.PASS or any(_of_parts(verdict)):
        return tuple(_of_the_whole(verdict))
    return unmet(verdict)


def _of_parts(verdict: ContractVerdict) -> Iterator[str]:
    errors = sum(finding.severity is not Severity.NOTICE for finding in verdict.findings)
    if errors:
        yield count(errors, "lint error")
    for outcome in (Outcome.FALSIFIED, Outcome.ERROR, Outcome.VACUOUS, Outcome.UNDECIDED):
        blocking = [result for result in verdict.results if result.outcome is outcome and blocks_gate(result)]
        if blocking:
            yield f"{outcome.value}: {_named(blocking)}"


def _of_the_whole(verdict: ContractVerdict) -> Iterator[str]:
    if verdict.absent:
        yield verdict.absent
    yield from _score(verdict)
    yield from (f"nothing claimed on {device}" for device in verdict.unclaimed)


def blocks_gate(result: Result) -> bool:
    """Return whether a result keeps its contract from passing; a refutation does whatever the gate requires."""
    failing = result.outcome in FAILING or result.outcome is Outcome.UNDECIDED
    return result.outcome is Outcome.FALSIFIED or (failing and result.required)


def _named(results: Sequence[Result]) -> str:
    names = (r.falsifier.id if r.falsifier.is_of_script else f"{r.falsifier.id} on {r.device}" for r in results)
    return listed(list(names))


def _score(verdict: ContractVerdict) -> Iterator[str]:
    least, score = verdict.contract.gate.mutation_score, verdict.score
    if least is None or verdict.partial:
        return
    requirement = f"the gate requires a mutation score of {least * 100:g} %"
    if score is None or score.value is None:
        yield f"{requirement}, none is recorded"
    elif score.changed:
        yield f"{requirement}, the recorded one is stale"
    elif score.sample:
        yield f"{requirement}, the recorded one is of a sample"
    elif score.value < least:
        yield f"{requirement}, the recorded one is {score.percent}"


def unmet_overall(report: Report) -> tuple[str, ...]:
    """Return the reasons why a validation does not pass that are neither contracts nor findings."""
    return tuple(_unmet_overall(report))


def _unmet_overall(report: Report) -> Iterator[str]:
    if report.interrupted:
        yield "interrupted: what had not run is undecided"
    yield from (f"shard {shard} is in none of the reports" for shard in report.missing)
    if not report.contracts and not report.shards:
        yield "nothing was measured: no contract was tried"
    yield from (f"{pattern} matches nothing" for pattern in report.unmatched)
