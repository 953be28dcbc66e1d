"""The engine of falsifiers with a `test`: a Hypothesis test, or a plain function that counts as one example."""

from dataclasses import dataclass

from pv.contract.model import Contract, Falsifier
from pv.engines.code import Function, ResolvedCode
from pv.engines.engine import Conditions, Engine, Worker
from pv.engines.seed import seed_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyPayload:
    """The payload of a falsifier with a `test`."""

    test: Function
    examples: int
    seed: int
    replay: str


class PropertyEngine(Engine[PropertyPayload]):
    """Tries the test of a claim on examples that Hypothesis draws."""

    name = "property"
    section = "falsifiers"
    payload_type = PropertyPayload
    asserts = True

    def takes(self, claim: Falsifier) -> bool:
        return claim.test is not None

    def payload(
        self, code: ResolvedCode, contract: Contract, claim: Falsifier, conditions: Conditions
    ) -> PropertyPayload:
        return PropertyPayload(
            test=code.test(claim),
            examples=conditions.examples or claim.examples,
            seed=seed_of(claim.id, conditions.seed),
            replay=conditions.replay,
        )

    def attack(self, payload: PropertyPayload, worker: Worker) -> dict[str, object]:
        from pv.engines.property import constants
        from pv.engines.property.attack import Settings, attack, load_profile

        constants.draw_from()  # draw no constants during the imports, since a module may draw examples at its import
        load_profile(payload.examples, shrink=not worker.mutated)
        subject, test = worker.subject(), worker.function(payload.test)
        constants.draw_from(worker.subject_module)
        worker.ready()
        # Hypothesis supplies the other parameters of the test.
        services = {"subject": subject, "device": worker.device}
        fixed = {name: value for name, value in services.items() if name in payload.test.parameters}
        settings = Settings(
            examples=payload.examples, seed=payload.seed, stop_at_first=worker.mutated, replay=payload.replay
        )
        return attack(test, fixed, settings, worker.failures, worker.stream)
