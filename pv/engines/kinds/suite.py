"""A claim of a conformance suite: a test that takes a bench, which runs the subject and shares its runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pv.contract.claims import Falsifier
from pv.contract.model import Contract
from pv.contract.names import Binding
from pv.engines.code import Code, Function
from pv.engines.kind import ENDED_EARLY, How, Kind, Worker, seed_of
from pv.engines.stream import Silent, Stream
from pv.engines.trial import Trial, TrialStatus
from pv.errors import PvError

SUITE = 3
"""The parts of `pv/suites/NAME` in the path of a test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitePayload:
    """The payload of a claim. needs: the features of the subject that it uses. premises: their tests, by claim.

    needed: the features that the premises use.
    """

    claim: str
    bench: Function
    test: Function
    needs: tuple[str, ...]
    premises: Mapping[str, Function]
    needed: Mapping[str, tuple[str, ...]]
    examples: int
    seed: int
    replay: str


class SuiteKind(Kind[SuitePayload]):
    """Tries a claim of a suite: not where the subject lacks a feature; vacuous where a premise does not hold."""

    name = "suite"
    section = "falsifiers"
    keys = ("needs", "premises")
    payload_type = SuitePayload
    asserts = True

    def takes(self, claim: Falsifier) -> bool:
        return claim.test is not None and "needs" in claim.options

    def payload(self, code: Code, contract: Contract, claim: Falsifier, how: How) -> SuitePayload:
        claims = {each.id: each for each in contract.claims}
        return SuitePayload(
            claim=claim.id.rpartition(".")[2],  # a contract that names the suite puts its own id before
            bench=code.function(bench_of(claim)),
            test=code.test(claim),
            needs=tuple(claim.options["needs"]),
            premises={id_: code.test(claims[id_]) for id_ in claim.options.get("premises", ())},
            needed={id_: tuple(claims[id_].options["needs"]) for id_ in claim.options.get("premises", ())},
            examples=how.examples or claim.examples,
            seed=seed_of(claim.id, how.seed),
            replay=how.replay,
        )

    def attack(self, payload: SuitePayload, worker: Worker) -> dict[str, Any]:
        from pv.engines import property as engine

        engine.load_profile(payload.examples, shrink=not worker.mutated)
        tests = {id_: worker.function(test) for id_, test in {**payload.premises, payload.claim: payload.test}.items()}
        subject, make = worker.subject(), worker.function(payload.bench)
        try:
            bench = make(subject, worker.shared)
        except PvError as error:  # the suite does not know how to drive the subject, and says what to write
            return {"status": TrialStatus.SKIPPED.value, "detail": str(error)}
        worker.ready()
        if reason := bench.missing(payload.claim, payload.needs):
            return {"status": TrialStatus.NOT_CLAIMED.value, "detail": reason}

        def tried(id_: str, stream: Stream, replay: str = "") -> dict[str, Any]:
            how = engine.Settings(
                examples=payload.examples, seed=payload.seed, stop_at_first=worker.mutated, replay=replay
            )
            return engine.attack(tests[id_], {"bench": bench}, how, worker.blame, stream)

        for id_ in () if worker.mutated else payload.premises:  # a fault may break a premise, too
            if TrialStatus(tried(id_, Silent())["status"]) in (TrialStatus.REFUTED, TrialStatus.RAISED):
                if reason := bench.missing(id_.rpartition(".")[2], payload.needed[id_]):
                    detail = f"its premise {id_} is not claimed: {reason}"
                    return {"status": TrialStatus.NOT_CLAIMED.value, "detail": detail}
                return {"status": TrialStatus.NO_PREMISE.value, "detail": f"its premise {id_} does not hold"}
        bench.used.clear()
        record = tried(payload.claim, worker.stream, payload.replay)
        runs = len({id(run) for run in bench.used})
        return record | {"valid": runs, "asked": runs}

    def binding(self, claim: Falsifier) -> str:
        return str(claim.test)

    def parameters(self, claim: Falsifier) -> tuple[str, ...]:
        return ("bench",)

    def judged(self, claim: Falsifier) -> bool:
        return bool(claim.kills)

    def effort(self, trial: Trial) -> str:
        if trial.status in ENDED_EARLY:
            return super().effort(trial)
        return f"{trial.valid} run{'' if trial.valid == 1 else 's'}, seed {trial.seed}, {trial.seconds:.2f} s"


def bench_of(claim: Falsifier) -> Binding:
    """Return the function of the claim's suite that makes a bench of a subject and a folder for runs."""
    assert claim.test is not None
    return Binding("/".join([*claim.test.file.split("/")[:SUITE], "bench.py"]), "bench")
