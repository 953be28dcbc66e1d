"""Rules for proof trials: limits, and retries of counterexamples."""

from dataclasses import replace

from pv.contract.claims import Falsifier
from pv.engines.engine import ENDED_EARLY
from pv.engines.registry import engine_of
from pv.engines.trial import Trial, TrialStatus


def within(claim: Falsifier, found: Trial) -> Trial:
    """Return the trial, naming the limit of the contract where the worker had to be killed."""
    if found.status is not TrialStatus.TIMEOUT or not found.stopped:
        return found
    limit = f"no answer within its limit of {engine_of(claim).soft_limit_s(claim):g} s, nor soon after"
    return replace(found, detail=f"{limit}: narrow its bounds, or raise its `limit`")


def refutes(found: Trial) -> bool:
    """Return whether there is a counterexample to try again."""
    refuting = (TrialStatus.REFUTED, TrialStatus.RAISED, *ENDED_EARLY)
    return found.counterexample is not None and found.status in refuting


def replayed(first: Trial, again: Trial) -> Trial:
    """Return what a search found, once its counterexample was tried in a fresh worker."""
    if again.status is TrialStatus.HELD:
        detail = "its counterexample does not reproduce: in a fresh process the claim holds there"
        return replace(first, status=TrialStatus.ERROR, detail=detail)
    if again.counterexample is None or first.counterexample is None:
        return replace(first, status=again.status, detail=f"its counterexample could not be replayed: {again.detail}")
    found = replace(again.counterexample, shrunk=first.counterexample.shrunk)
    return replace(first, status=again.status, detail=again.detail, counterexample=found)


def stands(claim: Falsifier, found: Trial) -> bool:
    """Return whether a claim must show that it can fail: it held, or a recorded proof may replace it."""
    return found.status is TrialStatus.HELD or (engine_of(claim).proves and found.status is TrialStatus.TIMEOUT)
