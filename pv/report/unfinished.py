"""The claims that a validation did not run because it ended early: at the first failure, or by Ctrl-C."""

from collections.abc import Iterator

from pv.contract.wording import count
from pv.report import phrases
from pv.results import gates
from pv.results.outcome import Result
from pv.results.trial import UNFINISHED
from pv.results.verdict import ContractVerdict, Report, Status


def claims(report: Report) -> Iterator[tuple[str, list[tuple[ContractVerdict, list[Result]]]]]:
    """Yield each reason to end early, with the contracts and their required results that are undecided for it."""
    undecided = [(verdict, phrases.undecided(verdict)) for verdict in report.contracts]
    for reason in UNFINISHED:
        if found := [(verdict, results[reason]) for verdict, results in undecided if reason in results]:
            yield reason, found


def is_unjudged(verdict: ContractVerdict) -> bool:
    """Return whether a contract has no result because the validation ended early, and is undecided for this alone."""
    needed = [result for result in verdict.results if result.required or result.trial is not None]
    others = any(result.reason not in UNFINISHED for result in needed) or gates.unmet_by_the_whole(verdict)
    return verdict.status is Status.UNDECIDED and not others


def sentence(reason: str, found: list[tuple[ContractVerdict, list[Result]]]) -> str:
    """Return how many claims were not run for a reason, and how many contracts have no result because of it."""
    number = sum(len({result.falsifier.id for result in results}) for _, results in found)
    unjudged = sum(is_unjudged(verdict) for verdict, _ in found)
    without = f", {count(unjudged, 'contract')} not judged" if unjudged else ""
    why = reason.removeprefix("not run: ")
    return f"{why}: {count(number, 'claim')} of {count(len(found), 'contract')} not run{without}"
