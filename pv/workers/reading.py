"""Turns a worker's reply into a Trial. No answer is an answer too: exit status 0 proves nothing."""

import os
import signal
from typing import Any

from pv.evidence import Change, Changes, Counterexample, Ending, Trial
from pv.workers.pool import Reply

_LIMITS = {"time": Ending.TIME, "memory": Ending.MEMORY}


def trial(reply: Reply, *, falsifier: str, device: str, mutant: str | None = None, seed: int = 0) -> Trial:
    """What `reply` says of one falsifier."""
    end = reply.last("end")
    first = reply.last("counterexample")
    ending, detail = (Ending(end["ending"]), end["detail"]) if end and "detail" in end else _without_answer(reply, end)
    found = end if end is not None and "error" in end else first
    said = end or {}
    return Trial(
        falsifier=falsifier,
        device=device,
        mutant=mutant,
        ending=ending,
        detail=detail,
        valid=said.get("valid", 0),
        invalid=said.get("invalid", 0),
        asked=said.get("asked", 0),
        counterexample=_counterexample(found) if found else None,
        reached=frozenset(said.get("reached", ())),
        files=frozenset(said.get("files", ())),
        mutant_reached=said.get("mutant_reached", False),
        seed=seed,
        seconds=reply.seconds,
        peak_mib=reply.peak_mib,
        output=reply.output,
        changes=_changes(said["changes"]) if "changes" in said else None,
    )


def _without_answer(reply: Reply, end: dict[str, Any] | None) -> tuple[Ending, str]:
    if end is not None:
        return Ending(end["ending"]), ""
    if reply.stopped:
        return _LIMITS[reply.stopped], f"stopped at its {reply.stopped} limit{_limit(reply)}"
    if reply.status is None:
        return Ending.CRASHED, "lost when the fork server was killed"
    if os.WIFSIGNALED(reply.status):
        number = os.WTERMSIG(reply.status)
        return Ending.CRASHED, f"killed by signal {number} ({signal.Signals(number).name})"
    return Ending.SILENT, f"the worker ended without an answer (exit status {os.WEXITSTATUS(reply.status)})"


def _limit(reply: Reply) -> str:
    return f" of {reply.limit_s:g} s" if reply.stopped == "time" else f" of {reply.memory_mib} MiB"


def _counterexample(said: dict[str, Any]) -> Counterexample:
    return Counterexample(
        arguments=said.get("arguments", {}),
        exact=said.get("exact", False),
        error=said.get("error", ""),
        frames=tuple(said.get("frames", ())),
        shrunk=said.get("shrunk", False),
        blob=said.get("blob", ""),
        hypothesis=said.get("hypothesis", ""),
    )


def _changes(said: dict[str, Any]) -> Changes:
    survivors = tuple(Change(**each) for each in said["survivors"])
    return Changes(told_apart=said["told_apart"], total=said["total"], survivors=survivors)
