"""Convert the reply of a worker to a `Trial`. A worker without a result has failed, even if its exit status is 0."""

import os
from dataclasses import replace

import cattrs

from pv.engines.stream import Record
from pv.engines.trial import Counterexample, Trial, TrialStatus
from pv.workers.launch import describe_signal
from pv.workers.running_task import Reply

_LIMITS = {
    "time": (TrialStatus.TIMEOUT, "stopped at its limit of {0.limit_s:g} s of CPU time"),
    "idle": (TrialStatus.TIMEOUT, "stopped after {0.limit_s:g} s in which it waited and used no CPU time"),
    "memory": (TrialStatus.OUT_OF_MEMORY, "stopped at its memory limit of {0.memory_mib} MiB"),
}
"""The status and the detail of a trial that exceeded a limit, by the name of the limit in `Reply.stopped`."""


def trial(reply: Reply, *, falsifier: str, device: str, mutant: str | None = None, seed: int = 0) -> Trial:
    """Return the trial of one falsifier.

    Args:
        reply: The reply of the worker that tried the falsifier.
        falsifier: The id of the falsifier.
        device: The device on which the falsifier ran.
        mutant: The id of the mutant that was planted; None for the clean code.
        seed: The seed of the examples.
    """
    end = reply.last("end")
    status, detail = _status_and_detail(reply, end)
    # The record `end` contains the shrunk counterexample. A worker that was killed while it was shrinking has sent only
    # a record `counterexample`, with the example that it found first.
    failure = end if end is not None and "error" in end else reply.last("counterexample")
    fields = {**(end or {}), "falsifier": falsifier, "device": device, "mutant": mutant, "status": status.value}
    return replace(
        cattrs.structure(fields | {"detail": detail}, Trial),
        counterexample=_counterexample(failure) if failure else None,
        seed=seed,
        seconds=reply.seconds,
        cpu_s=reply.cpu_s,
        peak_mib=reply.peak_mib,
        output=reply.output,
        stopped=end is None and bool(reply.stopped),
        current_arguments=_current_arguments(reply) if end is None else None,
    )


def _status_and_detail(reply: Reply, end: Record | None) -> tuple[TrialStatus, str]:
    """Return the status and the detail of a trial, even if its process ended without a result."""
    if end is not None:
        return TrialStatus(end["status"]), end.get("detail", "")
    if reply.stopped:
        status, detail = _LIMITS[reply.stopped]
        return status, detail.format(reply)
    if reply.status is None:
        return TrialStatus.CRASHED, "the fork server was killed while this task ran alone"
    if os.WIFSIGNALED(reply.status):  # killed by the code itself, or by the kernel for lack of memory
        return TrialStatus.CRASHED, f"killed by {describe_signal(os.WTERMSIG(reply.status))}"
    return TrialStatus.NO_RESULT, f"the worker ended without a result (exit status {os.WEXITSTATUS(reply.status)})"


def _current_arguments(reply: Reply) -> Counterexample | None:
    """Return the arguments of the call that was running when the worker ended, since this call may be the cause."""
    if reply.current_arguments is None:
        return None
    arguments, exact = reply.current_arguments
    return Counterexample(arguments=arguments, exact=exact, error="")


def _counterexample(record: Record) -> Counterexample:
    """Return the counterexample of a record."""
    # If the record was too long for the stream, it has no arguments.
    return cattrs.structure({"arguments": {}, "exact": False, "error": "", **record}, Counterexample)
