"""Executes one named configuration of the subject and leaves what it did in a directory, for predicates to read."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

RESULT, TRACE = "result.json", "trace.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What a predicate receives as `run`: the JSON result, the traced events in order, and the run's own directory."""

    arguments: Mapping[str, Any]
    device: str
    directory: Path
    result: Any
    trace: tuple[Mapping[str, Any], ...]


def execute(
    callable_: Callable[..., Any], subject: Any, *, device: str, directory: Path, arguments: Mapping[str, Any]
) -> None:
    """Calls `callable_(subject, device=, directory=, trace=, **arguments)` and keeps its result and trace.

    Raises TypeError when the result or an event is not JSON.
    """
    directory.mkdir(parents=True, exist_ok=True)
    files = directory / "files"
    files.mkdir()
    with _trace(directory / TRACE) as trace:
        result = callable_(subject, device=device, directory=files, trace=trace, **arguments)
    text = json.dumps({"arguments": dict(arguments), "device": device, "result": result})
    (directory / RESULT).write_text(text, encoding="utf-8")


@contextmanager
def _trace(path: Path) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    with path.open("w", encoding="utf-8") as file:
        yield lambda event: _append(file, event)


def _append(file: TextIO, event: Mapping[str, Any]) -> None:
    file.write(json.dumps(event) + "\n")


def read(directory: Path) -> RunRecord:
    """The run that `execute` left in `directory`."""
    said = json.loads((directory / RESULT).read_text(encoding="utf-8"))
    lines = (directory / TRACE).read_text(encoding="utf-8").splitlines()
    return RunRecord(
        arguments=said["arguments"],
        device=said["device"],
        directory=directory / "files",
        result=said["result"],
        trace=tuple(json.loads(line) for line in lines),
    )
