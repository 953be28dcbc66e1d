"""Tries a harness with its engines, or at one point, and returns the record of the trial."""

from collections.abc import Mapping, Sequence
from typing import Any

from pv.contract.bounds import Box
from pv.engines.encoding import decode
from pv.engines.harness import exhaustive, symbolic
from pv.engines.harness.point import Claim
from pv.engines.stream import Stream
from pv.engines.trial import TrialStatus

REFUTING = (TrialStatus.REFUTED.value, TrialStatus.RAISED.value)
ANSWERS = {
    TrialStatus.HELD.value: "it holds",
    TrialStatus.NO_EXAMPLES.value: "no point",
    **dict.fromkeys(REFUTING, "refuted"),
}
NO_ANSWER = (TrialStatus.TIMEOUT.value, TrialStatus.INCONCLUSIVE.value, TrialStatus.SKIPPED.value)


def prove(claim: Claim, box: Box, engines: Sequence[str], limit_s: float, stream: Stream) -> dict[str, Any]:
    """Return the record of what the engines found. If there are several, they must agree.

    A counterexample of an enumeration is one of the code itself, so no other engine is asked.
    """
    records: dict[str, dict[str, Any]] = {}
    for engine in sorted(engines, key="exhaustive".__ne__):
        if engine == "exhaustive":
            records[engine] = exhaustive.prove(claim, box, limit_s)
            if records[engine]["status"] in REFUTING:
                return records[engine]
        else:
            records[engine] = symbolic.prove(claim, box, limit_s, stream)
    return next(iter(records.values())) if len(records) == 1 else combine(records)


def combine(records: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return one record for several engines. An error comes first, then a disagreement, which is an error too.

    A counterexample counts if the other engine has no answer; a proof, or an empty box, needs both engines.
    """
    details = "; ".join(record["detail"] or f"{engine}: {record['status']}" for engine, record in records.items())
    outcomes = list(records.values())
    answers = [record for record in outcomes if record["status"] in ANSWERS]
    silent = [record for record in outcomes if record["status"] in NO_ANSWER]
    broken = next((record for record in outcomes if record not in (*answers, *silent)), None)
    if broken is not None:
        return {**broken, "detail": details}
    first = min(answers or silent, key=lambda record: record["status"] not in REFUTING)
    if len({ANSWERS[record["status"]] for record in answers}) > 1:
        return {**first, "status": TrialStatus.ERROR.value, "detail": f"the engines disagree: {details}"}
    if first["status"] in REFUTING:
        return first
    return {**(silent[0] if silent else first), "detail": details}


def replay(claim: Claim, point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of one point."""
    values = {name: decode(value) for name, value in point.items()}
    refuted = claim.refutation(values)
    return {**(refuted or {"status": TrialStatus.HELD.value}), "valid": 1}
