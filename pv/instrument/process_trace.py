"""The trace of a process and its children, merged from the log entries of all of them. Standard library only."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pv.instrument.coverage import at_import

Entry = dict[str, Any]
"""A line of the log of a process: that it has begun, or its trace at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTrace:
    """The code that a process and its children ran, and the files that they read.

    Functions are named `module:name`, files by their path below the root of the project.

    Attributes:
        seen: The functions that ran in covered modules.
        ran: The functions that ran in other modules of the project, and those that ran at import.
        loaded: The file of every module whose functions were recorded, by module.
        asked: The modules of the project that were imported or looked up.
        files: The files that were opened.
        texts: The Python files whose text was read, other than to load or to print it.
        listed: The folders whose entries were read.
        metadata: The folders whose entries were read to find the metadata of packages.
        searched: The names of the modules that were looked up, by folder.
        looked: The paths that code probed without opening them, for example with `os.stat`.
        outside: The files outside the root that were read.
        readers: The loaded libraries that read docstrings.
        applied: Whether the mutant was planted.
        broken: Why the mutant could not be planted, "" if it could.
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
"""The attributes that are sets of names."""


def union(traces: Sequence[ProcessTrace]) -> ProcessTrace:
    """Merge traces into one."""
    sets = {name: frozenset[str]().union(*(getattr(trace, name) for trace in traces)) for name in SETS}
    searched: dict[str, frozenset[str]] = {}
    for folder, names in {item for trace in traces for item in trace.searched.items()}:
        searched[folder] = searched.get(folder, frozenset()) | names
    return ProcessTrace(
        **sets,
        loaded={name: path for trace in traces for name, path in trace.loaded.items()},
        searched=searched,
        applied=any(trace.applied for trace in traces),
        broken=next(filter(None, (trace.broken for trace in traces)), ""),
        unsure=next(filter(None, (trace.unsure for trace in traces)), ""),
    )


def trace_of(entries: list[Entry]) -> ProcessTrace:
    """Return the trace of a process and its children.

    Args:
        entries: The lines of their log: each child writes one when it begins and one at its end. The process itself
            adds only its end, without an id.
    """
    begun = {entry["id"] for entry in entries if entry["id"]}
    # A process may write two entries, before it kills itself and at its exit. The later one includes the earlier one.
    ends = list({entry["id"]: entry for entry in entries if "seen" in entry}.values())
    trace = union([_trace_of_one(entry) for entry in ends])
    # Functions that ran at import count as reached only if the attack reached a function of a covered module.
    seen = trace.seen | at_import if trace.seen else trace.seen
    return replace(trace, seen=seen, ran=trace.ran | at_import, unsure=_unsure(ends, begun))


def _trace_of_one(entry: Entry) -> ProcessTrace:
    """Return the trace of the process that has written an entry at its end."""
    return ProcessTrace(
        **{name: frozenset[str](entry[name]) for name in SETS},
        loaded=entry["loaded"],
        searched={folder: frozenset(names) for folder, names in entry["searched"].items()},
        applied=entry["applied"],
        broken=entry["broken"],
        unsure="",
    )


def _unsure(ends: list[Entry], begun: set[str]) -> str:
    """Return the reason why the entries may be incomplete; "" if they are complete."""
    foreign = next(filter(None, (entry["foreign"] for entry in ends)), "")
    if foreign:
        return f"it started {foreign}"
    ended = {entry["id"] for entry in ends if entry["id"]}
    # A child that was killed wrote no end. A child that is not Python wrote no beginning either, but its parent counted
    # it among the processes that it started.
    if ended != begun or sum(entry["started"] for entry in ends) != len(begun):
        return "a process that it started was killed, or is not Python"
    return ""


def entries(log: str) -> list[Entry]:
    """Return the entries that child processes wrote to a log.

    The last line is left out unless it ends with a newline: a child may still be writing it.
    """
    if not log or not Path(log).exists():
        return []
    return [json.loads(line) for line in Path(log).read_text(encoding="utf-8").split("\n")[:-1]]
