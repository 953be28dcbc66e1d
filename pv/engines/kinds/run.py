"""A falsifier with a `test` and a `run`: a predicate over the record of a run that several falsifiers share."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pv.contract.claims import Falsifier, Run
from pv.contract.model import Contract
from pv.engines.blame import describe_error
from pv.engines.code import Code, Function
from pv.engines.kind import Conditions, Kind, Worker
from pv.engines.trial import TrialStatus
from pv.errors import UsageError

PREDICATE_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPayload:
    """The payload of a reference run: `callable` executes it, `test` judges its record; either may be absent."""

    directory: str
    callable: Function | None = None
    arguments: Mapping[str, Any]
    test: Function | None = None


class RunKind(Kind[RunPayload]):
    """Judges the record of a reference run, which is executed once per device and subject; it counts as one example."""

    name = "run"
    section = "falsifiers"
    payload_type = RunPayload
    asserts = True
    replays = False

    def takes(self, claim: Falsifier) -> bool:
        return claim.test is not None and claim.run is not None

    def execution(self, code: Code, run: Run, how: Conditions) -> RunPayload:
        """Return what the worker needs to execute a run alone, for its predicates to read."""
        return RunPayload(
            directory=how.directory, callable=code.function(run.callable), arguments=dict(how.execute or {})
        )

    def payload(self, code: Code, contract: Contract, claim: Falsifier, how: Conditions) -> RunPayload:
        callable_ = None if how.execute is None else code.function(self.run_of(contract, claim).callable)
        return RunPayload(
            directory=how.directory, callable=callable_, arguments=dict(how.execute or {}), test=code.test(claim)
        )

    def attack(self, payload: RunPayload, worker: Worker) -> dict[str, Any]:
        from pv.engines import property as engine
        from pv.engines import reference_run

        engine.load_profile(100, shrink=True)
        if payload.callable is not None and (failed := self._execute(payload, payload.callable, worker)) is not None:
            return failed
        if payload.test is None:
            return {"status": TrialStatus.HELD.value, "valid": 1}
        predicate = worker.function(payload.test)
        record = {"run": reference_run.read(Path(payload.directory))}
        return engine.attack(predicate, record, engine.Settings(examples=1, seed=0), worker.blame, worker.stream)

    def _execute(self, payload: RunPayload, described: Function, worker: Worker) -> dict[str, Any] | None:
        """Execute the run; return the record of its failure, None where it finished."""
        from pv.engines import reference_run

        subject, configured = worker.subject(), worker.function(described)
        worker.ready()
        worker.stream.calling(dict(payload.arguments))
        try:
            reference_run.execute(
                configured,
                subject,
                device=worker.device,
                directory=Path(payload.directory),
                arguments=payload.arguments,
            )
        except BaseException as error:
            return _failed(error, payload, worker)
        finally:
            worker.stream.returned()
        return None

    def binding(self, claim: Falsifier) -> str:
        return f"{claim.test} on run {claim.run}"

    def parameters(self, claim: Falsifier) -> tuple[str, ...]:
        return ("run",)

    def run_of(self, contract: Contract, claim: Falsifier) -> Run:
        return contract.run(claim.run or "")

    def limit_s(self, contract: Contract, claim: Falsifier, how: Conditions) -> float:
        return PREDICATE_LIMIT_S if how.execute is None else self.run_of(contract, claim).limit_s

    def check_replay(self, replay: str, contract: Contract, claim: Falsifier) -> None:
        raise UsageError(f"{claim.id} reads the run {claim.run!r}: it draws no examples, so none can be replayed")


def _failed(error: BaseException, payload: RunPayload, worker: Worker) -> dict[str, Any]:
    return {
        "status": worker.blame.status(error).value,
        "detail": f"the run did not finish: {describe_error(error)}",
        "error": describe_error(error),
        "arguments": dict(payload.arguments),
        "exact": True,
        "frames": worker.blame.frames(error),
        "valid": 1,
    }
