"""A claim of the field's existing format: its test is plain text, so it is counted but never run."""

from typing import Any, NoReturn

from pv.contract.claims import Falsifier, Harness
from pv.contract.model import Contract
from pv.engines.code import Code
from pv.engines.engine import Conditions, Engine, Worker


class ProseEngine(Engine[None]):
    """Counts a falsifier that no engine can try."""

    name = "prose"
    section = "falsifiers"
    payload_type = type(None)
    bound = False

    def takes(self, claim: Falsifier) -> bool:
        return True

    def payload(self, code: Code, contract: Contract, claim: Falsifier, conditions: Conditions) -> NoReturn:
        raise ValueError(f"{claim.id} is not bound: its test is prose")

    def attack(self, payload: None, worker: Worker) -> dict[str, Any]:
        raise TypeError("prose cannot be tried")

    def binding(self, claim: Falsifier) -> str:
        return "unbound: its test is prose"


class ProseHarnessEngine(ProseEngine):
    """Counts a harness that no engine can prove."""

    name = "prose harness"
    section = "harnesses"
    proves = True

    def takes(self, claim: Falsifier) -> bool:
        return isinstance(claim, Harness) and claim.test is None
