"""What a process and its children did, as they leave it in a log when they end. Standard library only."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pv.instrument.coverage import at_import


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTrace:
    """What a process and its children did.

    seen: the functions that ran in covered modules. ran: those of the project's other modules, and those at import.
    loaded: the file of every module whose functions were recorded. asked: modules of the project that were asked for.
    files, texts, listed, metadata, searched, looked, outside: see `FilesRead`. readers: loaded libraries that read
    docstrings. unsure: why more may have run or been read than this, "" if not.
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


def union(all_of: Sequence[ProcessTrace]) -> ProcessTrace:
    """Return what they all did."""
    sets = {name: frozenset[str]().union(*(getattr(each, name) for each in all_of)) for name in SETS}
    searched: dict[str, frozenset[str]] = {}
    for folder, names in {item for each in all_of for item in each.searched.items()}:
        searched[folder] = searched.get(folder, frozenset()) | names
    return ProcessTrace(
        **sets,
        loaded={name: path for each in all_of for name, path in each.loaded.items()},
        searched=searched,
        applied=any(each.applied for each in all_of),
        broken=next(filter(None, (each.broken for each in all_of)), ""),
        unsure=next(filter(None, (each.unsure for each in all_of)), ""),
    )


def gather(entries: list[dict[str, Any]]) -> ProcessTrace:
    """Return what the processes did that wrote these entries, each one when it began and one at its end."""
    begun = {entry["id"] for entry in entries if entry["id"]}
    ends = list({entry["id"]: entry for entry in entries if "seen" in entry}.values())  # a process may end twice

    def union(name: str) -> frozenset[str]:
        return frozenset(each for entry in ends for each in entry[name])

    found = union("seen")
    return ProcessTrace(
        seen=found | at_import if found else found,
        ran=union("ran") | at_import,
        loaded={name: path for entry in ends for name, path in entry["loaded"].items()},
        asked=union("asked"),
        files=union("files"),
        texts=union("texts"),
        listed=union("listed"),
        metadata=union("metadata"),
        searched={
            folder: frozenset(each for entry in ends for each in entry["searched"].get(folder, ()))
            for folder in union("searched")
        },
        looked=union("looked"),
        outside=union("outside"),
        readers=union("readers"),
        applied=any(entry["applied"] for entry in ends),
        broken=next(filter(None, (entry["broken"] for entry in ends)), ""),
        unsure=_unsure(ends, begun),
    )


def _unsure(ends: list[dict[str, Any]], begun: set[str]) -> str:
    """Return why it is not known what all processes did; "" if it is."""
    foreign = next(filter(None, (entry["foreign"] for entry in ends)), "")
    if foreign:
        return f"it started {foreign}"
    ended = {entry["id"] for entry in ends if entry["id"]}
    if ended != begun or sum(entry["started"] for entry in ends) != len(begun):
        return "a process that it started was killed, or is not Python"
    return ""


def entries(log: str) -> list[dict[str, Any]]:
    """Return what child processes wrote to a log. One may be about to write the rest of the last line."""
    if not log or not Path(log).exists():
        return []
    return [json.loads(line) for line in Path(log).read_text(encoding="utf-8").split("\n")[:-1]]
