"""The engine of harnesses: predicates over a bounded box, proved by enumeration or by a solver."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pv.contract import harness_bounds
from pv.contract.model import Contract, Falsifier, Harness
from pv.engines.code import Function, ResolvedCode
from pv.engines.engine import Conditions, Depends, Engine, Worker
from pv.engines.harness import rules
from pv.engines.replay import point, refuse_point
from pv.engines.rule import rules_of
from pv.engines.trial import Trial, TrialStatus

# A worker is killed at GRACE times the limit of the proof plus GRACE_S seconds: this leaves time to import the subject,
# end a path and shrink a counterexample.
GRACE_S, GRACE = 5.0, 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessPayload:
    """The payload of a harness: a predicate to prove over a box, or to try only at the point `replay`."""

    test: Function
    bounds: Mapping[str, str]
    requires: str
    engines: tuple[str, ...]
    limit_s: float
    replay: Mapping[str, Any] | None


class HarnessEngine(Engine[HarnessPayload]):
    """Proves that a predicate holds at every point of its box.

    Enumeration and CrossHair check their time limit rarely, so the worker has a limit too.
    """

    name = "harness"
    section = "harnesses"
    payload_type = HarnessPayload
    proves = True
    confirms = True
    depends_on = Depends.MODULES
    timeout_kills = False
    replays_arguments = True
    rules = rules_of(rules)

    def takes(self, claim: Falsifier) -> bool:
        return isinstance(claim, Harness) and claim.test is not None

    def payload(
        self, code: ResolvedCode, contract: Contract, claim: Falsifier, conditions: Conditions
    ) -> HarnessPayload:
        harness = _harness(claim)
        box = harness_bounds.parse_box(harness.bounds, harness.requires)
        return HarnessPayload(
            test=code.test(harness),
            bounds=dict(harness.bounds),
            requires=harness.requires,
            engines=tuple(harness_bounds.engines(harness.engine, box)),
            limit_s=harness.limit_s,
            replay=point(conditions.replay),
        )

    def attack(self, payload: HarnessPayload, worker: Worker) -> dict[str, object]:
        from pv.engines.harness import prove as prover
        from pv.engines.harness.point import Claim

        subject = worker.subject()
        claim = Claim(worker.function(payload.test), subject, worker.failures, worker.stream)
        worker.ready()
        if payload.replay is not None:
            return prover.replay(claim, payload.replay)
        box = harness_bounds.parse_box(payload.bounds, payload.requires)
        return prover.prove(claim, box, payload.engines, payload.limit_s, worker.stream)

    def parameters(self, claim: Falsifier) -> tuple[str, ...]:
        return ("subject", *_harness(claim).bounds)

    def soft_limit_s(self, claim: Falsifier) -> float:
        return _harness(claim).whole_limit_s

    def limit_s(self, contract: Contract, claim: Falsifier, conditions: Conditions) -> float:
        return GRACE * self.soft_limit_s(claim) + GRACE_S

    def clause(self, claim: Falsifier) -> Mapping[str, object]:
        harness = _harness(claim)
        return {"box": [dict(harness.bounds), harness.requires, harness.engine]}

    def check_replay(self, replay: str, contract: Contract, claim: Falsifier) -> None:
        refuse_point(replay, _harness(claim))

    def scope(self, claim: Falsifier) -> str:
        return _harness(claim).box

    def effort(self, trial: Trial) -> str:
        return trial.detail if trial.status is TrialStatus.HELD else f"for {trial.seconds:.2f} s"


def _harness(claim: Falsifier) -> Harness:
    assert isinstance(claim, Harness)
    return claim
