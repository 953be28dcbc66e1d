"""Merges the verdicts of one contract, each about some of its claims or devices."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pv.contract.claims import Falsifier
from pv.contract.model import Contract
from pv.results.outcome import Outcome, Result, in_gate
from pv.results.trial import TrialStatus
from pv.results.verdict import ContractVerdict, status_of

UNJUDGED = "its mutants were not tried"
FEWER = "it was tried on fewer examples than its contract asks for"
NOT_TRIED = (TrialStatus.CANCELLED, TrialStatus.SKIPPED)


def merge_verdicts(verdicts: Sequence[ContractVerdict]) -> ContractVerdict:
    """Return one verdict of several of the same contract and subject."""
    first, *rest = verdicts
    if not rest:
        return first
    results = _in_order(first.contract, _results(verdicts))
    claimed = frozenset(mutant for verdict in verdicts for mutant in verdict.claimed)
    missed = {mutant for verdict in verdicts for mutant in verdict.claimed - verdict.killed}
    equations = tuple({e.name: e for verdict in verdicts for e in verdict.contract.equations}.values())
    verdict = replace(
        first,
        contract=replace(first.contract, equations=equations),
        results=results,
        findings=tuple(dict.fromkeys(finding for verdict in verdicts for finding in verdict.findings)),
        killed=claimed - missed,
        claimed=claimed,
        untried=len(claimed - _judged(results)),
        partial=bool(_unselected(first.contract, results)),
        score=next((verdict.score for verdict in verdicts if verdict.score is not None), None),
        unclaimed=tuple(sorted({device for verdict in verdicts for device in verdict.unclaimed})),
        runs=tuple({(run.run, run.device): run for verdict in verdicts for run in verdict.runs}.values()),
        absent="",
    )
    return _decided(verdict)


def with_missing_claims(verdict: ContractVerdict, reason: str) -> ContractVerdict:
    """Return the verdict in which each claim is undecided, for a reason, where the gate requires a result of it.

    So is a claim whose mutants were not tried, or that was tried on fewer examples than the contract asks for.
    """
    contract = verdict.contract
    tried = map(_settled, verdict.results)
    results = [_untried(contract, claim, device, reason) for claim, device in _missing(contract, verdict.results)]
    return _decided(replace(verdict, results=_in_order(contract, [*tried, *results]), partial=False))


def _decided(verdict: ContractVerdict) -> ContractVerdict:
    whole = not verdict.partial
    status = status_of(
        verdict.contract, verdict.results, verdict.findings, verdict.score, verdict.unclaimed, whole=whole
    )
    return replace(verdict, status=status)


def _results(verdicts: Iterable[ContractVerdict]) -> list[Result]:
    """Return a result for each claim and device: the worst of those that were measured, else of the others."""
    found: dict[tuple[str, str], list[Result]] = {}
    for verdict in verdicts:
        for result in verdict.results:
            found.setdefault((result.falsifier.id, result.device), []).append(result)
    return [_worst(same) for same in found.values()]


def _worst(results: Sequence[Result]) -> Result:
    best = max(map(_weight, results))
    counting = [result for result in results if _weight(result) == best]
    worst = min(counting, key=lambda result: (list(Outcome).index(result.outcome), result.unjudged + result.fewer))
    return replace(worst, required=any(result.required for result in results))


def _weight(result: Result) -> int:
    """Return 2 if a result was measured, 1 if it is recorded, 0 if it is neither."""
    if result.trial is not None and result.trial.status not in NOT_TRIED:
        return 2
    return int(result.recorded is not None)


def _judged(results: Iterable[Result]) -> set[str]:
    trials = (trial for result in results for trial in result.mutants)
    return {trial.mutant or "" for trial in trials if trial.status is not TrialStatus.CANCELLED}


def _in_order(contract: Contract, results: Iterable[Result]) -> tuple[Result, ...]:
    """Return results in the order of the contract's claims and their devices."""
    places = {claim.id: place for place, claim in enumerate(contract.claims)}
    return tuple(sorted(results, key=lambda r: (places[r.falsifier.id], r.falsifier.devices.index(r.device))))


def _unselected(contract: Contract, results: Iterable[Result]) -> list[Falsifier]:
    """Return the claims without a result on any device."""
    known = {result.falsifier.id for result in results}
    return [claim for claim in contract.claims if claim.id not in known]


def _missing(contract: Contract, results: Sequence[Result]) -> Iterator[tuple[Falsifier, str]]:
    """Yield each claim and device without a result, where the gate requires one, or the claim has none at all."""
    known = {(result.falsifier.id, result.device) for result in results}
    unclaimed = {result.falsifier.id for result in results if result.outcome is Outcome.NOT_CLAIMED}
    unselected = _unselected(contract, results)
    for claim in contract.claims:
        devices = _required_devices(contract, claim)
        if claim in unselected:
            devices = devices or claim.devices[:1]
        if claim.id not in unclaimed:
            yield from ((claim, device) for device in devices if (claim.id, device) not in known)


def _settled(result: Result) -> Result:
    """Return the result; it is undecided if it held, and its mutants or some of its examples were not tried."""
    reason = UNJUDGED if result.unjudged else FEWER if result.fewer else ""
    return replace(result, outcome=Outcome.UNDECIDED, reason=reason) if reason else result


def _required_devices(contract: Contract, claim: Falsifier) -> tuple[str, ...]:
    """Return the devices on which the gate requires a claim: the CPU, unless it leaves it out, and those of records."""
    gate = contract.gate
    required = gate.fresh | {"cpu"} if not gate.devices or "cpu" in gate.devices else gate.fresh
    return tuple(device for device in claim.devices if device in required)


def _untried(contract: Contract, claim: Falsifier, device: str, reason: str) -> Result:
    return Result(
        falsifier=claim,
        device=device,
        outcome=Outcome.UNDECIDED,
        reason=reason,
        required=in_gate(contract, claim),
    )
