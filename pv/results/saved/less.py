"""Finds what the results of a contract show less of than those of its base, though it may ask for as much."""

from collections.abc import Iterator

from pv.contract.wording import FEW, listed
from pv.results.outcome import Outcome, Result
from pv.results.verdict import ContractVerdict

Less = Iterator[tuple[str, str]]


def less(old: ContractVerdict, new: ContractVerdict) -> Less:
    """Yield what was measured less, each as the id of a claim ("" for the contract) and a text."""
    yield from _examples(old, new)
    yield from _judged(old, new)
    yield from (("", text) for text in _score(old, new))


def _examples(old: ContractVerdict, new: ContractVerdict) -> Less:
    """Yield the claims that held on fewer valid examples than before."""
    before = {(result.falsifier.id, result.device): result for result in old.results}
    for result in new.results:
        was = before.get((result.falsifier.id, result.device))
        if was is None or was.trial is None or result.trial is None:
            continue
        if result.outcome is was.outcome is Outcome.HELD and result.trial.valid < was.trial.valid:
            yield result.falsifier.id, f"fewer valid examples: {result.trial.valid}, was {was.trial.valid}"


def _judged(old: ContractVerdict, new: ContractVerdict) -> Less:
    """Yield the claims that held and were tried on mutants before, and now are not."""
    judged = {(result.falsifier.id, result.device) for result in old.results if _holds(result) and not result.unjudged}
    for result in new.results:
        if result.unjudged and _holds(result) and (result.falsifier.id, result.device) in judged:
            yield result.falsifier.id, "no longer tried on mutants"


def _holds(result: Result) -> bool:
    return result.outcome in (Outcome.HELD, Outcome.PROVED)


def _score(old: ContractVerdict, new: ContractVerdict) -> Iterator[str]:
    if old.score is None or old.score.value is None:
        return
    if new.score is None or new.score.value is None:
        yield f"no mutation score recorded, was {old.score.percent}"
        return
    if new.score.value < old.score.value:
        yield f"mutation score {new.score.percent}, was {old.score.percent}"
    if new.score.changed and not old.score.changed:
        yield f"the mutation score is stale, changed: {listed(new.score.changed, FEW)}"
