"""A falsifier with a table: `rows` are pairs of an argument and the expected value of the subject."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pv.contract.model import Contract, Falsifier
from pv.engines.code import ResolvedCode
from pv.engines.engine import Conditions, Engine, Worker
from pv.engines.trial import TrialStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePayload:
    """The rows of a table."""

    rows: Sequence[Sequence[Any]]


class TableEngine(Engine[TablePayload]):
    """Calls the subject with every argument of a table."""

    name = "table"
    section = "falsifiers"
    keys = ("rows",)
    schema: ClassVar[dict[str, Any]] = {
        "rows": {"type": "array", "items": {"type": "array", "minItems": 2, "maxItems": 2}},
    }
    payload_type = TablePayload

    def takes(self, claim: Falsifier) -> bool:
        return "rows" in claim.options

    def payload(self, code: ResolvedCode, contract: Contract, claim: Falsifier, conditions: Conditions) -> TablePayload:
        return TablePayload(rows=claim.options["rows"])

    def attack(self, payload: TablePayload, worker: Worker) -> dict[str, Any]:
        subject = worker.subject()
        worker.ready()
        for number, (argument, expected) in enumerate(payload.rows, start=1):
            if (actual := subject(argument)) != expected:
                error = f"row {number}: {actual!r}, expected {expected!r}"
                return {"status": TrialStatus.REFUTED.value, "valid": number, "error": error}
        return {"status": TrialStatus.HELD.value, "valid": len(payload.rows)}
