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
ANSWERS = {Ending.HELD.value: "it holds", Ending.BARREN.value: "no point", **dict.fromkeys(REFUTING, "refuted")}
NO_ANSWER = (Ending.TIME.value, Ending.UNSETTLED.value, Ending.SKIPPED.value)


def prove(claim: Claim, box: Box, engines: Sequence[str], limit_s: float, stream: Stream) -> dict[str, Any]:
    """The record of what the engines found. Several have to agree: what one alone says is not told as settled."""
    records = {
        engine: exhaustive.prove(claim, box, limit_s)
        if engine == "exhaustive"
        else symbolic.prove(claim, box, limit_s, stream)
        for engine in engines
    }
    return next(iter(records.values())) if len(records) == 1 else settled(records)


def settled(records: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """One record of several engines'. What is broken comes first, then answers that differ, which are an error too.

    Beside an engine without an answer a counterexample stands; a proof, or an empty box, has to be agreed on.
    """
    said = "; ".join(record["detail"] or f"{engine}: {record['ending']}" for engine, record in records.items())
    found = list(records.values())
    answers = [record for record in found if record["ending"] in ANSWERS]
    silent = [record for record in found if record["ending"] in NO_ANSWER]
    broken = next((record for record in found if record not in (*answers, *silent)), None)
    if broken is not None:
        return {**broken, "detail": said}
    first = min(answers or silent, key=lambda record: record["ending"] not in REFUTING)
    if len({ANSWERS[record["ending"]] for record in answers}) > 1:
        return {**first, "ending": Ending.BROKEN.value, "detail": f"the engines disagree: {said}"}
    if first["ending"] in REFUTING:
        return first
    return {**(silent[0] if silent else first), "detail": said}


def replay(claim: Claim, box: Box, point: Mapping[str, Any]) -> dict[str, Any]:
    """The record of one point. Where it holds there, that is known of one point, and settles nothing."""
    values = {name: decode(value) for name, value in point.items()}
    refuted = claim.refutation(values)
    if refuted is not None:
        return {**refuted, "valid": 1}
    return {"ending": Ending.UNSETTLED.value, "detail": "it holds at the one point that was replayed", "valid": 1}
