"""Merge the traces of a process and its child processes into one trace."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pv.instrument.coverage import at_import

Entry = dict[str, Any]
"""A line of the log. A process writes its id when it starts, and its trace, which has the key `seen`, when it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTrace:
    """The code that a process and its children ran, and the files that they read.

    Functions are named `module:name`, files by their path below the root of the project.

    Attributes:
        seen: The functions that ran in covered modules.
        ran: The functions that ran in other modules of the project, and the functions that ran at import.
        loaded: The file of every module that was loaded through the import hook, by the name of the module.
        asked: The modules of the project that were imported or looked up.
        files: The files that were opened.
        texts: The Python files whose text was read for another purpose than to import the file or to print its lines.
        listed: The folders whose entries were read, except to import modules.
        metadata: The folders whose entries were read to find the metadata of packages.
        searched: The names of the modules that were looked up, by folder.
        looked: The paths that code examined without opening them, for example with `os.stat`.
        outside: The files outside the root that were read.
        readers: The loaded libraries that read docstrings.
        applied: Whether the mutant was planted.
        broken: The reason why the mutant could not be planted; "" if it could.
        unsure: The reason why the trace may be incomplete; "" if it is complete.
    """

    seen: frozenset[str]
    ran: frozenset[str]
    loaded: Mapping[str, str]
    asked: frozenset[str]
    files: frozenset[str]
    texts: frozenset[str]
    listed: frozenset[str]
    metadata: frozenset[str]
    searched: Mapping[str, frozenset[str]]
    looked: frozenset[str]
    outside: frozenset[str]
    readers: frozenset[str]
    applied: bool
    broken: str
    unsure: str


SETS = ("seen", "ran", "asked", "files", "texts", "listed", "metadata", "looked", "outside", "readers")
"""The attributes of a trace that are sets."""


def union(traces: Sequence[ProcessTrace]) -> ProcessTrace:
    """Merge traces into one."""
    sets = {name: frozenset[str]().union(*(getattr(trace, name) for trace in traces)) for name in SETS}
    loaded: dict[str, str] = {}
    searched: dict[str, frozenset[str]] = {}
    for trace in traces:
        loaded.update(trace.loaded)
        for folder, names in trace.searched.items():
            searched[folder] = searched.get(folder, frozenset()) | names
    return ProcessTrace(
        **sets,
        loaded=loaded,
        searched=searched,
        applied=any(trace.applied for trace in traces),
        # If there are several reasons, report the first.
        broken=next((trace.broken for trace in traces if trace.broken), ""),
        unsure=next((trace.unsure for trace in traces if trace.unsure), ""),
    )


def trace_of(entries: list[Entry]) -> ProcessTrace:
    """Return the trace of a process and its child processes.

    Args:
        entries: The entries of the children, one when a child starts and one when it ends; and one entry of the
            process itself, its trace with the id "".
    """
    # A process may write its trace twice: before it kills itself, and when it exits. The later trace is used, since it
    # includes the earlier one.
    ends = {entry["id"]: entry for entry in entries if "seen" in entry}
    traces = [
        ProcessTrace(
            **{name: frozenset[str](end[name]) for name in SETS},
            loaded=end["loaded"],
            searched={folder: frozenset(names) for folder, names in end["searched"].items()},
            applied=end["applied"],
            broken=end["broken"],
            unsure="",
        )
        for end in ends.values()
    ]
    trace = union(traces)
    # Functions that ran at import count as reached only if the attack has reached a function of a covered module.
    seen = trace.seen | at_import if trace.seen else trace.seen
    started = {entry["id"] for entry in entries}
    return replace(trace, seen=seen, ran=trace.ran | at_import, unsure=_missing_trace(ends, started))


def _missing_trace(ends: Mapping[str, Entry], started: set[str]) -> str:
    """Return the reason why the trace of a process may be missing; "" if all traces are complete.

    Args:
        ends: The last trace of every process, by the id of the process.
        started: The ids of all processes that have written an entry.
    """
    foreign = next((end["foreign"] for end in ends.values() if end["foreign"]), "")
    if foreign:
        return f"it started {foreign}"
    # A child that was killed wrote no trace. A child that is not Python wrote no entry, but its parent counted it.
    if ends.keys() != started or sum(end["started"] for end in ends.values()) != len(started - {""}):
        return "a process that it started was killed, or is not Python"
    return ""


def entries(log: str) -> list[Entry]:
    """Return the entries that child processes wrote to a log.

    The last line is ignored if it has no newline, because a child may still be writing it.
    """
    if not log or not Path(log).exists():
        return []
    return [json.loads(line) for line in Path(log).read_text(encoding="utf-8").split("\n")[:-1]]
