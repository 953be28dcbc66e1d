"""Prove a harness with one or both of its proof engines, or replay one point.

The proof engine `exhaustive` enumerates the points of the box; `symbolic` runs CrossHair. All functions return the
record of the trial.
"""

import time
from collections.abc import Mapping, Sequence

from pv.contract.harness_bounds import Box
from pv.engines.encoding import decode
from pv.engines.harness import symbolic
from pv.engines.harness.point import Claim
from pv.engines.stream import Stream
from pv.engines.trial import TrialStatus

# Number of points between two checks of the time limit: small enough to stop in time, large enough for cheap checks.
POINTS_PER_CHECK = 256


def enumerate_box(claim: Claim, box: Box, limit_s: float) -> dict[str, object]:
    """Try every point of a box in the order of `Box.points`: the values of the last bound change fastest.

    Args:
        claim: The predicate with its subject.
        box: The bounds and the condition `requires`.
        limit_s: The limit on CPU time, in seconds.

    Returns:
        The record of the trial. The enumeration ends at the first refutation or error, at the last point, or at the
        limit.
    """
    start, tried, outside = time.process_time(), 0, 0
    for number, point in enumerate(box.points()):
        seconds = time.process_time() - start if number % POINTS_PER_CHECK == 0 else 0.0
        if seconds > limit_s:
            # Not all of these points are tried: `requires` may exclude some.
            points = f"{number:,} of {box.size:,} points were enumerated"
            detail = f"exhaustive: at its limit of {limit_s:g} s of CPU time, {points}"
            return {"status": TrialStatus.TIMEOUT.value, "detail": detail, "valid": tried, "invalid": outside}
        if not box.admits(point):
            outside += 1
            continue
        tried += 1
        failure = claim.failure(point)
        if failure is not None:
            return {**failure, "shrunk": True, "valid": tried, "invalid": outside}
    return _complete(tried, outside, time.process_time() - start, box)


def _complete(tried: int, outside: int, seconds: float, box: Box) -> dict[str, object]:
    """Return the record of a complete enumeration: held, or no examples if no point was inside the box."""
    counts = {"valid": tried, "invalid": outside}
    if tried:
        detail = f"exhaustive: all {tried:,} points in {seconds:.2f} s"
        return {"status": TrialStatus.HELD.value, "detail": detail, **counts}
    text = f"`requires: {box.requires}` admits none of its {outside:,} points" if outside else "a bound admits no value"
    return {"status": TrialStatus.NO_EXAMPLES.value, "detail": f"the box is empty: {text}", **counts}


REFUTING = (TrialStatus.REFUTED.value, TrialStatus.RAISED.value)
# The answer of a proof engine for each conclusive status. Two engines contradict each other if their answers differ.
ANSWERS = {
    TrialStatus.HELD.value: "it holds",
    TrialStatus.NO_EXAMPLES.value: "no point",
    **dict.fromkeys(REFUTING, "refuted"),
}
UNDECIDED = (TrialStatus.TIMEOUT.value, TrialStatus.INCONCLUSIVE.value, TrialStatus.SKIPPED.value)


def prove(claim: Claim, box: Box, engines: Sequence[str], limit_s: float, stream: Stream) -> dict[str, object]:
    """Run the proof engines and return their combined record. See `combine` for two engines.

    Args:
        claim: The predicate with its subject.
        box: The bounds and the condition `requires`.
        engines: The names of the proof engines: `exhaustive`, `symbolic` or both.
        limit_s: The limit of each proof engine on CPU time, in seconds.
        stream: Receives a counterexample of CrossHair before it is shrunk.
    """
    records: dict[str, dict[str, object]] = {}
    # Enumeration calls the code itself, so it runs first: after its counterexample, the solver is not needed.
    if "exhaustive" in engines:
        records["exhaustive"] = enumerate_box(claim, box, limit_s)
        if records["exhaustive"]["status"] in REFUTING:
            return records["exhaustive"]
    if "symbolic" in engines:
        records["symbolic"] = symbolic.prove(claim, box, limit_s, stream)
    return next(iter(records.values())) if len(records) == 1 else combine(records)


def combine(records: Mapping[str, dict[str, object]]) -> dict[str, object]:
    """Combine the records of several proof engines into one.

    1. If an engine failed, its record is returned, with the details of all engines.
    2. If two engines contradict each other, the result is an error.
    3. If an engine has a counterexample and the other engines are undecided, the claim is refuted.
    4. If an engine is undecided and no engine has a counterexample, the result is undecided.
    5. Otherwise all engines agree that the claim holds or that the box is empty.

    Args:
        records: The record of each engine by the name of the engine.
    """
    details = "; ".join(str(record["detail"] or f"{engine}: {record['status']}") for engine, record in records.items())
    outcomes = list(records.values())
    answers = [record for record in outcomes if record["status"] in ANSWERS]
    undecided = [record for record in outcomes if record["status"] in UNDECIDED]
    failed = next((record for record in outcomes if record not in (*answers, *undecided)), None)
    if failed is not None:
        return {**failed, "detail": details}
    # The record of a refutation if there is one, since False is less than True.
    first = min(answers or undecided, key=lambda record: record["status"] not in REFUTING)
    if len({ANSWERS[str(record["status"])] for record in answers}) > 1:
        return {**first, "status": TrialStatus.ERROR.value, "detail": f"the engines disagree: {details}"}
    if first["status"] in REFUTING:
        return first
    return {**(undecided[0] if undecided else first), "detail": details}


def replay(claim: Claim, point: Mapping[str, object]) -> dict[str, object]:
    """Try the predicate at one point, whose values are encoded as JSON, and return the record of the trial."""
    values = {name: decode(value) for name, value in point.items()}
    failure = claim.failure(values)
    return {**(failure or {"status": TrialStatus.HELD.value}), "valid": 1}
