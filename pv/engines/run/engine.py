"""The engines of claims about a reference run.

A claim is a predicate over the record of the run, or a claim of the suite `training-run` about the trace of a command.
"""

import linecache
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pv.contract.model import Contract, Falsifier, Run
from pv.contract.wording import count
from pv.engines.code import Function, ResolvedCode
from pv.engines.engine import ENDED_EARLY, Conditions, Engine, Worker
from pv.engines.failures import describe_error
from pv.engines.trial import Trial, TrialStatus
from pv.errors import UsageError

PREDICATE_LIMIT_S = 60.0
"""The limit of a predicate that reads the record of a finished run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPayload:
    """The payload of an attack that executes a reference run, judges its record, or both.

    The attack executes the run if `callable` or `command` is set; otherwise it reads an existing record. It judges the
    record if `test` or `observed` is set.

    Attributes:
        directory: The folder of the record; "" until the executor has chosen it.
        callable: The function that executes the run.
        command: The words of the command that executes the run.
        environment: The environment variables of the command.
        arguments: The arguments of the function or command.
        test: The predicate over the record.
        observed: The id of the `training-run` claim that judges the trace; "" for none.
        must_reach: Whether `observed` is undecided, rather than not claimed, if the trace has nothing for it to check.
    """

    directory: str = ""
    callable: Function | None = None
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, Any]
    test: Function | None = None
    observed: str = ""
    must_reach: bool = False


class RunEngine(Engine[RunPayload]):
    """Tries a predicate on the record of a reference run. The record counts as one example.

    A run is executed once per device and subject; all claims that read the run share its record.
    """

    name = "run"
    section = "falsifiers"
    payload_type = RunPayload
    asserts = True
    replays = False

    def takes(self, claim: Falsifier) -> bool:
        return claim.test is not None and claim.run is not None

    def execution(self, code: ResolvedCode, run: Run, conditions: Conditions) -> RunPayload:
        """Build the payload of a worker that executes a run and does not judge the record."""
        return RunPayload(
            callable=code.function(run.callable) if run.callable is not None else None,
            command=run.command,
            environment=run.environment,
            arguments=dict(conditions.execute or {}),
        )

    def payload(self, code: ResolvedCode, contract: Contract, claim: Falsifier, conditions: Conditions) -> RunPayload:
        payload = RunPayload(arguments={})
        if conditions.execute is not None:
            payload = self.execution(code, self.run_of(contract, claim), conditions)
        return self.add_judge(payload, code, claim)

    def add_judge(self, payload: RunPayload, code: ResolvedCode, claim: Falsifier) -> RunPayload:
        """Return a copy of the payload with the predicate of a claim, which then judges the record."""
        return replace(payload, test=code.test(claim))

    def attack(self, payload: RunPayload, worker: Worker) -> dict[str, object]:
        from pv.engines.property.attack import Settings, attack, load_profile
        from pv.engines.run import reference_run

        # Loaded before the predicate is imported, since its module may also contain Hypothesis tests.
        load_profile(100, shrink=True)
        if payload.callable is not None or payload.command:
            failure = self._execute(payload, worker)
            if failure is not None:
                return failure
        if payload.observed:
            return _judge_trace(payload, worker)
        if payload.test is None:
            return {"status": TrialStatus.HELD.value, "valid": 1}
        predicate = worker.function(payload.test)
        run = reference_run.read(Path(payload.directory))
        # No predicate can hold on a run that failed.
        if run.failure:
            return {"status": TrialStatus.RAISED.value, "detail": run.failure, "error": run.failure, "valid": 1}
        return attack(predicate, {"run": run}, Settings(examples=1, seed=0), worker.failures, worker.stream)

    def _execute(self, payload: RunPayload, worker: Worker) -> dict[str, object] | None:
        """Execute the run. Return the fields of the trial if the run raised an exception; None if it finished."""
        from pv.engines.run import reference_run

        folder = reference_run.RunFolder(Path(payload.directory), worker.device, payload.arguments)
        if payload.callable is not None:
            subject = worker.subject()
            execute = partial(reference_run.execute, worker.function(payload.callable), subject, folder)
        else:
            # The subject of a command is not imported: it may be a script, which an import would run.
            execute = partial(reference_run.execute_command, payload.command, payload.environment, folder)
        worker.ready()
        worker.stream.begin_call(dict(payload.arguments))
        try:
            execute()
        except BaseException as error:
            return {
                "status": worker.failures.status(error).value,
                "detail": f"the run did not finish: {describe_error(error)}",
                "error": describe_error(error),
                "arguments": dict(payload.arguments),
                "exact": True,
                "frames": worker.failures.frames(error),
                "valid": 1,
            }
        finally:
            worker.stream.end_call()
        return None

    def binding(self, claim: Falsifier) -> str:
        return f"{claim.test} on run {claim.run}"

    def parameters(self, claim: Falsifier) -> tuple[str, ...]:
        return ("run",)

    def run_of(self, contract: Contract, claim: Falsifier) -> Run:
        return contract.run(claim.run or "")

    def limit_s(self, contract: Contract, claim: Falsifier, conditions: Conditions) -> float:
        return PREDICATE_LIMIT_S if conditions.execute is None else self.run_of(contract, claim).limit_s

    def check_replay(self, replay: str, contract: Contract, claim: Falsifier) -> None:
        raise UsageError(f"{claim.id} reads the run {claim.run!r}: it draws no examples, so none can be replayed")


class ObservedEngine(RunEngine):
    """Tries a claim of the suite `training-run` on the trace of an observed command."""

    name = "observed"
    keys = ("observed", "must_reach")
    asserts = False

    def takes(self, claim: Falsifier) -> bool:
        return "observed" in claim.options

    def add_judge(self, payload: RunPayload, code: ResolvedCode, claim: Falsifier) -> RunPayload:
        return replace(payload, observed=claim.options["observed"], must_reach=claim.options["must_reach"])

    def binding(self, claim: Falsifier) -> str:
        return f"{claim.options['observed']} on run {claim.run}"

    def judged(self, claim: Falsifier) -> bool:
        return bool(claim.kills)

    def effort(self, trial: Trial) -> str:
        if trial.status in ENDED_EARLY:
            return super().effort(trial)
        return count(trial.valid, "time")


def _judge_trace(payload: RunPayload, worker: Worker) -> dict[str, object]:
    """Try a claim of `training-run` on the trace of the run; return the fields of the trial."""
    from pv.engines.run import reference_run
    from pv.suites.training_run.claims import judge

    run = reference_run.read(Path(payload.directory))
    record = judge(run.observed)[payload.observed]
    counts = {"valid": record.tried, "asked": record.tried}
    # An observed fault counts even if the run failed later.
    if record.proofs:
        fault = record.proofs[0]
        return {
            "status": TrialStatus.REFUTED.value,
            "error": record.explanation,
            "right": fault.right,
            "frames": [_frame(worker.failures.relative_path(fault.at))] if fault.at else [],
            "explained": True,
            **counts,
        }
    if run.failure:
        return {"status": TrialStatus.SKIPPED.value, "detail": run.failure}
    if record.not_reached:
        status = TrialStatus.SKIPPED if payload.must_reach else TrialStatus.NOT_CLAIMED
        return {"status": status.value, "detail": f"not reached: {record.not_reached}"}
    return {"status": TrialStatus.HELD.value, **counts}


def _frame(location: str) -> str:
    """Return a location "path:line" in the format of a trial's frames: "path:line in NAME: SOURCE LINE"."""
    path, _, line = location.rpartition(":")
    return f"{location} in {Path(path).stem}: {linecache.getline(path, int(line)).strip()}"
