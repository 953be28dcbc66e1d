"""Execute one named configuration of the subject, and record the run in a directory that predicates read."""

import copy
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any, TextIO

# Names in the folder of a run: the result, the events of the trace, and the folder with what was observed of a command.
RESULT, TRACE, OBSERVED = "result.json", "trace.jsonl", "observed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The argument `run` of a predicate.

    Attributes:
        arguments: The arguments of the run.
        device: The device of the run.
        directory: The folder with the files that the run wrote.
        result: The result, as JSON.
        trace: The traced events, in order.
        observed: The `pv.suites.training_run.run.Run` of an observed command; None for the run of a function.
        failure: Why the command failed; "" if it did not.
    """

    arguments: Mapping[str, Any]
    device: str
    directory: Path
    result: Any
    trace: tuple[Mapping[str, Any], ...]
    observed: Any = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder in which a run is recorded, with the device and the arguments of the run."""

    directory: Path
    device: str
    arguments: Mapping[str, Any]

    @property
    def files(self) -> Path:
        """Return the folder for the files that the run writes."""
        return self.directory / "files"

    def begin(self) -> None:
        """Create the empty folder `files`. Remove the files of an earlier attempt, which may have been killed."""
        for name in (self.files, self.directory / OBSERVED):
            shutil.rmtree(name, ignore_errors=True)
        self.files.mkdir(parents=True)

    def end(self, result: object, failure: str = "") -> None:
        """Write the result of the finished run.

        Args:
            result: The result.
            failure: Why the command failed; "" if it did not fail.

        Raises:
            TypeError: JSON cannot represent the result.
        """
        content = {"arguments": dict(self.arguments), "device": self.device, "result": result, "failure": failure}
        # The result is written last: a record without it is incomplete.
        (self.directory / RESULT).write_text(_json(content, result, "result"), encoding="utf-8")


def execute(callable_: Callable[..., object], subject: object, folder: RunFolder) -> None:
    """Call the function that executes a run, and record its result and trace.

    Args:
        callable_: Called as `callable_(subject, device=, directory=, trace=, **arguments)`.
        subject: The subject of the contract.
        folder: The folder in which the run is recorded.

    Raises:
        TypeError: JSON cannot represent the result or an event.
    """
    folder.begin()
    with _trace(folder.directory / TRACE) as trace:
        # A copy: the run may change its arguments.
        arguments = copy.deepcopy(dict(folder.arguments))
        result = callable_(subject, device=folder.device, directory=folder.files, trace=trace, **arguments)
    folder.end(result)


def execute_command(command: Sequence[str], environment: Mapping[str, str], folder: RunFolder) -> None:
    """Run a training command under observation; record its traces, its output, and an event for each optimizer step.

    If the command fails, the reason is recorded. The traces that the command left before the failure can be judged.

    Args:
        command: The words of the command. `{name}` is replaced by the argument `name`, and `{directory}` by the folder
            for the files of the run.
        environment: Environment variables that are set in addition to the variables of this process.
        folder: The folder in which the run is recorded.
    """
    from pv.observe import launch
    from pv.suites.training_run.run import read_folder, step_rows

    folder.begin()
    (folder.directory / OBSERVED).mkdir()
    # Words are passed without a shell, so a value with spaces stays one argument.
    words = [fill_placeholders(word, {**folder.arguments, "directory": str(folder.files)}) for word in command]
    variables = {**os.environ, **environment}
    variables |= launch.environment(folder.directory / OBSERVED, inherited=variables)
    # `python` in a command is this interpreter, even if its virtual environment is not activated.
    variables["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), variables.get("PATH", os.defpath)])
    with (folder.directory / "output").open("w+", encoding="utf-8", errors="replace") as file:
        try:
            status = subprocess.run(words, env=variables, stdin=subprocess.DEVNULL, stdout=file, stderr=file).returncode
        except OSError as error:
            (folder.directory / TRACE).write_text("", encoding="utf-8")
            folder.end({"output": ""}, f"cannot run {words[0]}: {error.strerror}")
            return
        file.seek(0)
        output = file.read()
    sys.stdout.write(output)
    # The last line of a traceback is the exception.
    last = (output.strip().splitlines() or ["it printed nothing"])[-1]
    failure = f"`{shlex.join(words)}` ended with status {status}: {last}" if status else ""
    with _trace(folder.directory / TRACE) as trace:
        for process in read_folder(folder.directory / OBSERVED, complete=True).processes:
            for step in step_rows(process):
                trace({"event": "step", **step})
    folder.end({"output": output}, failure)


def fill_placeholders(word: str, arguments: Mapping[str, object]) -> str:
    """Replace every `{name}` in a word by the argument `name`; leave braces that name no argument unchanged."""

    def value(match: re.Match[str]) -> str:
        argument = arguments.get(match[1], match[0])
        return argument if isinstance(argument, str) else json.dumps(argument)

    return re.sub(r"\{(\w+)\}", value, word)


@contextmanager
def _trace(path: Path) -> Iterator[Callable[[Mapping[str, object]], None]]:
    """Open the file of a trace; yield a function that appends one event to the file."""
    with path.open("w", encoding="utf-8") as file:
        yield lambda event: _append(file, event)


def _append(file: TextIO, event: Mapping[str, object]) -> None:
    file.write(_json(event, event, "event") + "\n")


def _json(content: object, part: object, name: str) -> str:
    """Return `content` as JSON.

    Args:
        content: The object to write.
        part: The part of `content` that comes from user code.
        name: The name of the part, for messages.

    Raises:
        TypeError: JSON cannot represent a value of the part. The message names the value and a replacement.
    """
    try:
        return json.dumps(content)
    except (TypeError, ValueError) as error:
        path, value = next(_non_json_values(part, name), (name, part))
        kind = type(value).__name__
        raise TypeError(f"{path} is a {kind}, which JSON cannot represent: {_replacement_hint(path, value)}") from error


def _non_json_values(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Yield the values that JSON cannot represent, each with its path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(key, str | int | float | bool | None):
                yield from _non_json_values(item, f"{path}[{key!r}]")
            else:
                yield f"the key {key!r} of {path}", key
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _non_json_values(item, f"{path}[{index}]")
    elif not isinstance(value, str | int | float | bool | None):
        yield path, value


def _replacement_hint(path: str, value: object) -> str:
    """Return a hint on how to replace a value that JSON cannot represent."""
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
    """Return the record that `execute` or `execute_command` wrote to `directory`."""
    content = json.loads((directory / RESULT).read_text(encoding="utf-8"))
    lines = (directory / TRACE).read_text(encoding="utf-8").splitlines()
    return RunRecord(
        arguments=content["arguments"],
        device=content["device"],
        directory=directory / "files",
        result=content["result"],
        trace=tuple(json.loads(line) for line in lines),
        observed=_observed_run(directory / OBSERVED, complete=not content["failure"]),
        failure=content["failure"],
    )


def _observed_run(folder: Path, *, complete: bool) -> object:
    """Return the `Run` that is built from the traces of a command; None for the run of a function."""
    if not folder.is_dir():
        return None
    from pv.suites.training_run.run import read_folder

    return read_folder(folder, complete=complete)
