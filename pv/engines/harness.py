"""Tries a harness with the engines that it asks for, or at one point, and says what came of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from pv.bounds import Box
from pv.engines import exhaustive, symbolic
from pv.engines.encoding import decode
from pv.engines.point import Claim
from pv.engines.stream import Stream
from pv.evidence import Ending

REFUTING = (Ending.REFUTED.value, Ending.RAISED.value)


def prove(claim: Claim, box: Box, engines: Sequence[str], limit_s: float, stream: Stream) -> dict[str, Any]:
    """The record of what the engines found. Several have to agree: what one alone says is not told as settled."""
    records = {
        engine: exhaustive.prove(claim, box, limit_s)
        if engine == "exhaustive"
        else symbolic.prove(claim, box, limit_s, stream)
        for engine in engines
    }
    found = list(records.values())
    if len(found) == 1:
        return found[0]
    kinds = {"refuted" if record["ending"] in REFUTING else record["ending"] for record in found}
    if len(kinds) == 1:
        details = "; ".join(filter(None, [record["detail"] for record in found]))
        return {**found[0], "detail": details}
    return _disagreeing(records)


def _disagreeing(records: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A counterexample and a proof are an error. Beside an engine without an answer, only a counterexample is one."""
    said = "; ".join(record["detail"] or f"{engine}: {record['ending']}" for engine, record in records.items())
    endings = {record["ending"]: record for record in records.values()}
    refuted = next((endings[ending] for ending in REFUTING if ending in endings), None)
    if refuted is None:
        silent = next(record for ending, record in endings.items() if ending != Ending.HELD.value)
        return {**silent, "detail": said}
    if Ending.HELD.value not in endings:
        return dict(refuted)
    return {**refuted, "ending": Ending.BROKEN.value, "detail": f"the engines disagree: {said}"}


def replay(claim: Claim, box: Box, point: Mapping[str, Any]) -> dict[str, Any]:
    """The record of one point. Where it holds there, that is known of one point, and settles nothing."""
    values = {name: decode(value) for name, value in point.items()}
    refuted = claim.refutation(values)
    if refuted is not None:
        return {**refuted, "valid": 1}
    return {"ending": Ending.UNSETTLED.value, "detail": "it holds at the one point that was replayed", "valid": 1}
