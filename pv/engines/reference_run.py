"""Executes one named configuration of the subject and records it in a directory, which predicates read."""

import copy
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
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
        # A copy: the run may change its arguments.
        result = callable_(subject, device=device, directory=files, trace=trace, **copy.deepcopy(dict(arguments)))
    text = _json({"arguments": dict(arguments), "device": device, "result": result}, result, "result")
    (directory / RESULT).write_text(text, encoding="utf-8")


@contextmanager
def _trace(path: Path) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    with path.open("w", encoding="utf-8") as file:
        yield lambda event: _append(file, event)


def _append(file: TextIO, event: Mapping[str, Any]) -> None:
    file.write(_json(event, event, "event") + "\n")


def _json(whole: Any, part: Any, name: str) -> str:
    """Return `whole` as JSON. Raise TypeError with the first value of its `part` that is none, and what to write."""
    try:
        return json.dumps(whole)
    except (TypeError, ValueError) as error:
        path, value = next(_not_json(part, name), (name, part))
        kind = type(value).__name__
        raise TypeError(f"{path} is a {kind}, which JSON does not have: {_instead(path, value)}") from error


def _not_json(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the paths and values that JSON does not have."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str | int | float | bool | None):
                yield from _not_json(item, f"{path}[{key!r}]")
            else:
                yield f"the key {key!r} of {path}", key
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _not_json(item, f"{path}[{place}]")
    elif not isinstance(value, str | int | float | bool | None):
        yield path, value


def _instead(path: str, value: Any) -> str:
    """Return what the run should return in place of a value that JSON does not have."""
    if hasattr(value, "tolist") and hasattr(value, "item"):
        single = getattr(value, "shape", ()) in ((), (1,))
        return f"return `{path}.{'item' if single else 'tolist'}()`"
    if is_dataclass(value):
        return f"return `dataclasses.asdict({path})`"
    if isinstance(value, set | frozenset):
        return f"return `sorted({path})`"
    if isinstance(value, Path):
        return f"return `str({path})`"
    return "return text, numbers, booleans, None, lists and dicts of these"


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
