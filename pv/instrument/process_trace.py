"""Merge the log entries of a process and its children into one trace. Imports only the standard library."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pv.instrument.coverage import at_import

Entry = dict[str, Any]
"""A line of the log: the beginning of a process (its id alone), or its trace at its end (with the key `seen`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTrace:
    """The code that a process and its children ran, and the files that they read.

    Functions are named `module:name`, files by their path below the root of the project.

    Attributes:
        seen: The functions that ran in covered modules.
        ran: The functions that ran in other modules of the project, and functions that ran at import.
        loaded: The file of every module whose functions were recorded, by module.
        asked: The modules of the project that were imported or looked up.
        files: The files that were opened.
        texts: The Python files whose text was read for another purpose than to import or to print it.
        listed: The folders whose entries were read.
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
"""The attributes that are sets of names."""


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
        # Of several reasons, the first is enough.
        broken=next((trace.broken for trace in traces if trace.broken), ""),
        unsure=next((trace.unsure for trace in traces if trace.unsure), ""),
    )


def trace_of(entries: list[Entry]) -> ProcessTrace:
    """Return the trace of a process and its children.

    Args:
        entries: The lines of their log: each child writes one when it begins and one at its end. The process itself
            has only the entry of its end, with the id "".
    """
    # A process may write two ends: before it kills itself, and at its exit. The later one includes the earlier one.
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
    # Functions that ran at import count as reached only if the attack reached a function of a covered module.
    seen = trace.seen | at_import if trace.seen else trace.seen
    begun = {entry["id"] for entry in entries}
    return replace(trace, seen=seen, ran=trace.ran | at_import, unsure=_unsure(ends, begun))


def _unsure(ends: Mapping[str, Entry], begun: set[str]) -> str:
    """Return the reason why the entries may be incomplete; "" if they are complete.

    Args:
        ends: The last entry of every process, by its id.
        begun: The ids of all processes that have written an entry.
    """
    foreign = next((end["foreign"] for end in ends.values() if end["foreign"]), "")
    if foreign:
        return f"it started {foreign}"
    # A child that was killed wrote no end. A child that is not Python wrote no entry, but its parent counted it.
    if ends.keys() != begun or sum(end["started"] for end in ends.values()) != len(begun - {""}):
        return "a process that it started was killed, or is not Python"
    return ""


def entries(log: str) -> list[Entry]:
    """Return the entries that child processes wrote to a log.

    A last line without a newline is left out: a child may still be writing it.
    """
    if not log or not Path(log).exists():
        return []
    return [json.loads(line) for line in Path(log).read_text(encoding="utf-8").split("\n")[:-1]]
