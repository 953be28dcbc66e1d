"""What a campaign does with the trials of harnesses: their limits, and counterexamples that are tried again."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pv.evidence import Ending, Trial
from pv.model import Falsifier, Harness

# Beyond an engine's own limit: to end a path, to make a counterexample smaller, to start on a busy machine.
GRACE_S, GRACE = 5.0, 1.25


def hard_limit_s(harness: Harness) -> float:
    """When the worker of a harness is ended: engines look at their own limit only now and then, or never."""
    return GRACE * harness.whole_limit_s + GRACE_S


def point(replay: str) -> Mapping[str, Any] | None:
    """The point that a user asks to replay, if one is."""
    return dict(json.loads(replay)) if replay else None


def within(harness: Harness, found: Trial) -> Trial:
    """The trial, with the limit of the contract where the worker had to be ended."""
    if found.ending is not Ending.TIME or not found.detail.startswith("stopped at"):
        return found
    limit = f"no answer within its limit of {harness.whole_limit_s:g} s, nor soon after"
    return replace(found, detail=f"{limit}: narrow its bounds, or raise its `limit`")


def refutes(found: Trial) -> bool:
    """Whether there is a counterexample to try again."""
    early = found.ending in (Ending.TIME, Ending.MEMORY, Ending.CRASHED, Ending.SILENT)
    return found.counterexample is not None and (early or found.ending in (Ending.REFUTED, Ending.RAISED))


def replayed(first: Trial, again: Trial) -> Trial:
    """What a search found, once its counterexample was tried in a worker where nothing had run before."""
    if again.ending is Ending.UNSETTLED:
        detail = "its counterexample does not reproduce: in a fresh process the claim holds there"
        return replace(first, ending=Ending.BROKEN, detail=detail)
    if again.counterexample is None or first.counterexample is None:
        return replace(first, ending=again.ending, detail=f"its counterexample could not be replayed: {again.detail}")
    found = replace(again.counterexample, shrunk=first.counterexample.shrunk)
    return replace(first, ending=again.ending, detail=again.detail, counterexample=found)


def stands(falsifier: Falsifier, found: Trial) -> bool:
    """Whether it must show that it could have failed: it held, or it may stand by a proof that was recorded."""
    return found.ending is Ending.HELD or (isinstance(falsifier, Harness) and found.ending is Ending.TIME)
