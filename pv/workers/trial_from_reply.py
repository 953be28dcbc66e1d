"""Turns a worker's reply into a `Trial`. A worker that exits with 0 and no result is an error."""

import os
import signal

from pv.engines.trial import Counterexample, EquationMutant, EquationMutants, Reads, Trial, TrialStatus
from pv.workers.running_task import Record, Reply

_LIMITS = {
    "time": (TrialStatus.TIMEOUT, "stopped at its limit of {0.limit_s:g} s of CPU time"),
    "idle": (TrialStatus.TIMEOUT, "stopped after {0.limit_s:g} s in which it waited and used no CPU time"),
    "memory": (TrialStatus.OUT_OF_MEMORY, "stopped at its memory limit of {0.memory_mib} MiB"),
}
"""The status and the detail of a trial that exceeded a limit, by `Reply.stopped`."""


def trial(reply: Reply, *, falsifier: str, device: str, mutant: str | None = None, seed: int = 0) -> Trial:
    """Return the trial of one falsifier.

    Args:
        reply: The reply of the worker that tried the falsifier.
        falsifier: The id of the falsifier.
        device: The device that it ran on.
        mutant: The id of the mutant that was planted, None for the clean code.
        seed: The seed of its examples.
    """
    end = reply.last("end")
    counterexample = reply.last("counterexample")
    status, detail = (
        (TrialStatus(end["status"]), end["detail"]) if end and "detail" in end else _status_without_detail(reply, end)
    )
    # The end of a finished search has the shrunk counterexample. A worker that was killed while it shrank one has
    # only sent the record of the first.
    failure = end if end is not None and "error" in end else counterexample
    record = end or {}
    return Trial(
        falsifier=falsifier,
        device=device,
        mutant=mutant,
        status=status,
        detail=detail,
        valid=record.get("valid", 0),
        invalid=record.get("invalid", 0),
        asked=record.get("asked", 0),
        counterexample=_counterexample(failure) if failure else None,
        reached=frozenset(record.get("reached", ())),
        files=frozenset(record.get("files", ())),
        reads=_reads(record["reads"]) if "reads" in record else None,
        mutant_reached=record.get("mutant_reached", False),
        seed=seed,
        seconds=reply.seconds,
        cpu_s=reply.cpu_s,
        peak_mib=reply.peak_mib,
        output=reply.output,
        equation_mutants=_equation_mutants(record["equation_mutants"]) if "equation_mutants" in record else None,
        untriable_but=frozenset(record["untriable_but"]) if "untriable_but" in record else None,
        stopped=end is None and bool(reply.stopped),
        current_arguments=_current_arguments(reply) if end is None else None,
    )


def _status_without_detail(reply: Reply, end: Record | None) -> tuple[TrialStatus, str]:
    """Return the status and detail of a result without detail, or of a process that ended without a result."""
    if end is not None:
        return TrialStatus(end["status"]), ""
    if reply.stopped:
        status, detail = _LIMITS[reply.stopped]
        return status, detail.format(reply)
    if reply.status is None:
        return TrialStatus.CRASHED, "the fork server was killed while this task ran alone"
    if os.WIFSIGNALED(reply.status):  # by the code itself, or by the kernel when the machine ran out of memory
        number = os.WTERMSIG(reply.status)
        return TrialStatus.CRASHED, f"killed by signal {number} ({signal.Signals(number).name})"
    return TrialStatus.NO_RESULT, f"the worker ended without a result (exit status {os.WEXITSTATUS(reply.status)})"


def _reads(record: Record) -> Reads:
    names = ("functions", "asked", "texts", "listed", "metadata", "looked", "outside", "readers")
    sets = {name: frozenset(record[name]) for name in names}
    searched = {folder: frozenset(modules) for folder, modules in record["searched"].items()}
    return Reads(**sets, searched=searched, loaded=record["loaded"], unsure=record["unsure"])


def _current_arguments(reply: Reply) -> Counterexample | None:
    """Return the arguments of the call in which the worker ended, which may have ended it."""
    if reply.current_arguments is None:
        return None
    arguments, exact = reply.current_arguments
    return Counterexample(arguments=arguments, exact=exact, error="")


def _counterexample(record: Record) -> Counterexample:
    return Counterexample(
        arguments=record.get("arguments", {}),
        exact=record.get("exact", False),
        error=record.get("error", ""),
        frames=tuple(record.get("frames", ())),
        shrunk=record.get("shrunk", False),
        blob=record.get("blob", ""),
        hypothesis=record.get("hypothesis", ""),
        call=record.get("call", ""),
        printed=record.get("printed", ""),
        explained=record.get("explained", False),
        right=record.get("right", ""),
    )


def _equation_mutants(record: Record) -> EquationMutants:
    survivors = tuple(
        EquationMutant(
            equation=mutant["equation"],
            line=mutant["line"],
            column=mutant["column"],
            before=mutant["before"],
            after=mutant["after"],
        )
        for mutant in record["survivors"]
    )
    return EquationMutants(killed=record["killed"], total=record["total"], survivors=survivors)
