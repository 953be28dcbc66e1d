"""A falsifier with a `test`: a Hypothesis test, or a plain function, which counts as one example."""

from dataclasses import dataclass
from typing import Any

from pv.contract.claims import Falsifier
from pv.contract.model import Contract
from pv.engines.code import Code, Function
from pv.engines.kind import Conditions, Kind, Worker, seed_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyPayload:
    """The payload of a test."""

    test: Function
    examples: int
    seed: int
    replay: str


class PropertyKind(Kind[PropertyPayload]):
    """Tries a test of the subject on examples that Hypothesis draws."""

    name = "property"
    section = "falsifiers"
    payload_type = PropertyPayload
    asserts = True

    def takes(self, claim: Falsifier) -> bool:
        return claim.test is not None

    def payload(self, code: Code, contract: Contract, claim: Falsifier, how: Conditions) -> PropertyPayload:
        return PropertyPayload(
            test=code.test(claim),
            examples=how.examples or claim.examples,
            seed=seed_of(claim.id, how.seed),
            replay=how.replay,
        )

    def attack(self, payload: PropertyPayload, worker: Worker) -> dict[str, Any]:
        from pv.engines import constants
        from pv.engines import property as engine

        constants.only_from()  # a module may draw examples when it is imported
        engine.load_profile(payload.examples, shrink=not worker.mutated)
        subject, test = worker.subject(), worker.function(payload.test)
        constants.only_from(worker.subject_module)
        worker.ready()
        fixed = {"subject": subject, "device": worker.device}
        wanted = {name: value for name, value in fixed.items() if name in payload.test.parameters}
        settings = engine.Settings(
            examples=payload.examples, seed=payload.seed, stop_at_first=worker.mutated, replay=payload.replay
        )
        return engine.attack(test, wanted, settings, worker.blame, worker.stream)
