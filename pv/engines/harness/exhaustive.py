"""Proves a harness by trying every point of its box, the nearest to zero first."""

import time
from typing import Any

from pv.contract.bounds import Box
from pv.engines.harness.point import Claim
from pv.engines.trial import TrialStatus

# Points between two looks at the clock: cheap enough, and frequent enough to stop in time.
LOOK_EVERY = 256


def prove(claim: Claim, box: Box, limit_s: float) -> dict[str, Any]:
    """Return the record of a search. It ends at the first refutation, the last point, or its limit on CPU time."""
    start, tried, outside = time.process_time(), 0, 0
    for number, point in enumerate(box.points()):
        seconds = time.process_time() - start if number % LOOK_EVERY == 0 else 0.0
        if seconds > limit_s:
            detail = (
                f"exhaustive: at its limit of {limit_s:g} s of CPU time, {number:,} of {box.size:,} points were tried"
            )
            return {"status": TrialStatus.TIMEOUT.value, "detail": detail, "valid": tried, "invalid": outside}
        if not box.admits(point):
            outside += 1
            continue
        tried += 1
        refuted = claim.refutation(point)
        if refuted is not None:
            return {**refuted, "shrunk": True, "valid": tried, "invalid": outside}
    return _complete(tried, outside, time.process_time() - start, box)


def _complete(tried: int, outside: int, seconds: float, box: Box) -> dict[str, Any]:
    counts = {"valid": tried, "invalid": outside}
    if tried:
        detail = f"exhaustive: all {tried:,} points in {seconds:.2f} s"
        return {"status": TrialStatus.HELD.value, "detail": detail, **counts}
    why = f"`requires: {box.requires}` admits none of its {outside:,} points" if outside else "a bound admits no value"
    return {"status": TrialStatus.NO_EXAMPLES.value, "detail": f"the box is empty: {why}", **counts}
