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
    """Where one engine has no answer the harness has none either; two answers that differ are an error."""
    silent = next((r for r in records.values() if r["ending"] not in (*REFUTING, Ending.HELD.value)), None)
    if silent is not None:
        return dict(silent)
    said = "; ".join(f"{engine}: {record['detail'] or record['ending']}" for engine, record in records.items())
    refuted = next(record for record in records.values() if record["ending"] in REFUTING)
    return {**refuted, "ending": Ending.BROKEN.value, "detail": f"the engines disagree: {said}"}


def replay(claim: Claim, box: Box, point: Mapping[str, Any]) -> dict[str, Any]:
    """The record of one point. Where it holds there, that is known of one point, and settles nothing."""
    values = {name: decode(value) for name, value in point.items()}
    if set(values) != set(box.bounds) or not inside(box, values):
        names = ", ".join(box.bounds)
        return {"ending": Ending.BROKEN.value, "detail": f"{dict(point)} is no point of the box over {names}"}
    refuted = claim.refutation(values)
    if refuted is not None:
        return {**refuted, "valid": 1}
    return {"ending": Ending.UNSETTLED.value, "detail": "it holds at the one point that was replayed", "valid": 1}


def inside(box: Box, point: Mapping[str, Any]) -> bool:
    """Whether a point lies within the bounds, and `requires` admits it."""
    return all(bound.contains(point[name]) for name, bound in box.bounds.items()) and box.admits(point)
