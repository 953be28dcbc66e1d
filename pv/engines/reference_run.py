"""Executes one named configuration of the subject and records it in a directory, which predicates read."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

RESULT, TRACE = "result.json", "trace.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The argument `run` of a predicate: the JSON result, the traced events in order, and the run's own directory."""

    arguments: Mapping[str, Any]
    device: str
    directory: Path
    result: Any
    trace: tuple[Mapping[str, Any], ...]


def execute(
    callable_: Callable[..., Any], subject: Any, *, device: str, directory: Path, arguments: Mapping[str, Any]
) -> None:
    """Call `callable_(subject, device=, directory=, trace=, **arguments)` and record its result and trace.

    Raise TypeError if the result or an event is not JSON.
    """
    files = directory / "files"
    shutil.rmtree(files, ignore_errors=True)  # of an earlier attempt, whose worker was lost
    files.mkdir(parents=True)
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
    """Return the run that `execute` recorded in `directory`."""
    content = json.loads((directory / RESULT).read_text(encoding="utf-8"))
    lines = (directory / TRACE).read_text(encoding="utf-8").splitlines()
    return RunRecord(
        arguments=content["arguments"],
        device=content["device"],
        directory=directory / "files",
        result=content["result"],
        trace=tuple(json.loads(line) for line in lines),
    )
