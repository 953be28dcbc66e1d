"""Files with one line of JSON per entry: metrics of logged and evaluated steps, events, and resources.

`metrics.json` beside this file is the schema of a line of metrics. After a killed run only the last line of a file may
be incomplete.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import IO, Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from reference_trainer.callbacks.base import Callback, Context, event_of
from reference_trainer.callbacks.dispatch import Observer
from reference_trainer.errors import DataError, OutputError


class LineFile:
    """An open file of lines. In a file that is opened to append, the first line begins after a line break.

    Methods raise `OutputError` with the path if they cannot write. After a failed write, `close` does not raise again.

    Args:
        path: The file.
        mode: A binary mode of `open`. An `OSError` of `open` is not converted: the caller writes the message.
    """

    def __init__(self, path: Path, mode: str) -> None:
        self._path = path
        self._failed = False
        self._is_new = not os.path.lexists(path)
        self._file: IO[bytes] = path.open(mode)
        self._may_be_incomplete = mode == "ab" and path.is_file()  # not a pipe, whose end cannot be read

    def seek_end_of_line(self, length: int) -> bool:
        """Go to the position after the first `length` bytes, and return whether a line ends there."""
        self._file.seek(max(length - 1, 0))
        return length == 0 or self._file.read(1) == b"\n"

    def truncate(self, length: int) -> None:
        """Truncate the file to `length` bytes. The next line is written at its new end."""
        with self._convert_errors():
            self._file.seek(length)
            self._file.truncate(length)

    def write(self, line: str) -> int:
        """Write a line and a line break, flush, and return the number of bytes."""
        text = line.encode() + b"\n"
        with self._convert_errors():
            # A killed run or a full disk leaves an incomplete last line, which must not begin this line.
            if self._may_be_incomplete and not self._ends_with_line_break():
                text = b"\n" + text
            self._may_be_incomplete = False
            self._file.write(text)
            self._file.flush()
        return len(text)

    def _ends_with_line_break(self) -> bool:
        """Return whether the file is empty or ends with a line break."""
        with self._path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
            return file.read(1) in (b"", b"\n")

    def close(self) -> None:
        """Close the file, and remove it if it was created here and no line was written."""
        try:
            self._file.close()
        except OSError as error:
            if not self._failed:  # after a failed write, `close` flushes the same bytes and fails again
                raise self._write_error(error) from error
        if self._is_new and self._path.is_file() and self._path.stat().st_size == 0:
            self._path.unlink()

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Convert an `OSError` of this block into an `OutputError` with the path."""
        try:
            yield
        except OSError as error:
            self._failed = True
            raise self._write_error(error) from error

    def _write_error(self, error: OSError) -> OutputError:
        return OutputError(f"cannot write to {self._path}: {error.strerror}")


EVENTS = ("on_train_begin", "on_log", "on_evaluate", "on_save", "on_epoch_end", "on_train_end")
_FIELDS = (
    "hook run attempt rank step epoch micro_batch loss learning_rate gradient_norm elapsed_s tokens sequences memory "
    "metrics batch_metrics validation_metrics checkpoint_path"
)


class EventLog(Observer):
    """Observer that appends each event to a file, as one line of strict JSON; only rank 0 writes.

    A resumed run keeps the lines of the killed run and repeats some of its events, with a larger `attempt`.

    Args:
        path: The file.
        hooks: The names of the hooks to write.

    Raises:
        OutputError: The file cannot be opened.
        CallbackError: A hook is unknown.
    """

    def __init__(self, path: str | Path, *, hooks: Iterable[str] = EVENTS) -> None:
        names = [event_of(hook).value for hook in hooks]  # before the file is created
        self._file = _open(path)
        # Set the chosen hooks as attributes of the instance: `has_hook` sees no others, so other events cost no time.
        for name in names:
            setattr(self, name, partial(_write, self._file, _FIELDS))


class ResourceLog(Observer):
    """Observer that appends learning rate, memory, CPU time and speed of each logged step to a file.

    `cpu_s` is the CPU time of all threads of the process, in seconds. With several ranks, each writes its own file.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._file: LineFile | None = None

    def on_log(self, context: Context) -> None:
        if self._file is None:
            suffix = f".rank{context.rank}{self._path.suffix}" if context.world_size > 1 else self._path.suffix
            self._file = _open(self._path.with_suffix(suffix))
        fields = "run attempt rank step learning_rate memory elapsed_s steps_per_s tokens_per_s"
        _write(self._file, fields, context, cpu_s=time.process_time())


def _open(path: str | Path) -> LineFile:
    """Open a file to append lines."""
    try:
        return LineFile(Path(path), "ab")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


def _write(file: LineFile, fields: str, context: Context, **resources: float) -> None:
    """Write the fields of a context, and resources, as JSON. Without resources, only rank 0 writes."""
    if context.is_world_process_zero or resources:
        values = {name: getattr(context, name) for name in fields.split()} | resources
        file.write(json.dumps({name: _json_value(value) for name, value in values.items()}))


def _json_value(value: object) -> object:
    """Return a value for JSON: NaN and infinities, which JSON does not have, become strings."""
    if isinstance(value, Mapping):
        return {name: _json_value(item) for name, item in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


METRICS_FILE = "metrics.jsonl"
"""Name of the metrics file in the directory of a run."""

_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_Number = Annotated[float, BeforeValidator(lambda raw: _NOT_FINITE.get(raw, raw) if isinstance(raw, str) else raw)]


class MetricsLine(BaseModel):
    """The metrics of a logged or evaluated step, as read from a file.

    The fields are as in `Context`, but `metrics` includes the metrics of an evaluation.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    step: int = Field(ge=1)
    epoch: int = Field(ge=1)
    learning_rate: _Number | None
    elapsed_s: _Number
    tokens: int = Field(ge=0)
    metrics: dict[str, _Number]


def schema() -> str:
    """Return the JSON Schema of one line."""
    return (files(__package__) / "metrics.json").read_text(encoding="utf-8")


def line(context: Context) -> str:
    """Return the line of a logged or evaluated step, without the newline.

    `metrics` includes the metrics of an evaluation. JSON has neither NaN nor infinity: a number that is not finite is
    written as a string.
    """
    metrics = {**context.metrics, **context.validation_metrics}
    fields = {
        "step": context.step,
        "epoch": context.epoch,
        "learning_rate": _json_number(context.learning_rate),
        "elapsed_s": _json_number(context.elapsed_s),
        "tokens": context.tokens,
        "metrics": {name: _json_number(value) for name, value in metrics.items()},
    }
    return json.dumps(fields, allow_nan=False)


def _json_number(value: float | None) -> float | str | None:
    return str(value) if value is not None and not math.isfinite(value) else value


class MetricsCallback(Callback):
    """Callback that writes a line for each step with metrics; after a killed run only the last line may be incomplete.

    A step that is both logged and evaluated has one line: it is written by `on_log` and replaced by `on_evaluate`.

    The constructor opens the file; the file is truncated when the run begins. Use a new callback for every run.

    Args:
        path: The file.
        truncate_to: The number of bytes of an existing file to keep, such as the `length` that was recorded with a
            checkpoint; a resumed run continues after these bytes, and 0 starts over. None: the file must not exist.

    Raises:
        OutputError: The file cannot be opened, exists although `truncate_to` is None, or has no line that ends at
            `truncate_to`. During a run: a line cannot be written, or the run begins before the last written step.
    """

    def __init__(self, path: Path, *, truncate_to: int | None = None) -> None:
        self._path = path
        self._length = truncate_to or 0
        self._last = (0, self._length)  # the step of the last line, and the bytes before it
        mode = "x+b" if truncate_to is None or not os.path.lexists(path) else "r+b"
        try:
            self._file = LineFile(path, mode)
        except FileExistsError as error:
            raise OutputError(f"{path} exists; remove it, or give truncate_to") from error
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror}") from error
        if not self._file.seek_end_of_line(self._length):
            self.close()
            raise OutputError(
                f"{path} has no line that ends at byte {self._length}, where the run continues; restore the file of "
                "that run, or give the path of its checkpoint to --resume and use another --out"
            )

    @property
    def length(self) -> int:
        """Return the number of bytes of the lines so far: the `truncate_to` of a run that resumes after this step."""
        return self._length

    def on_train_begin(self, context: Context) -> None:
        if context.step < self._last[0]:
            raise OutputError(
                f"{self._path} has the metrics of step {self._last[0]}, and a run begins at step {context.step}; "
                "create a new MetricsCallback for each run"
            )
        self._file.truncate(self._length)

    def on_log(self, context: Context) -> None:
        if context.metrics:
            self._write(context)

    def on_evaluate(self, context: Context) -> None:
        if context.validation_metrics:
            self._write(context)

    def _write(self, context: Context) -> None:
        step, before = self._last
        if step == context.step:
            self._file.truncate(before)
            self._length = before
        self._last = (context.step, self._length)
        self._length += self._file.write(line(context))

    def close(self) -> None:
        """Close the file, and remove it if it was created here and no line was written."""
        self._file.close()


def read_metrics(path: Path) -> list[MetricsLine]:
    """Return the lines of a metrics file, without an incomplete last line, which a killed run may leave.

    Raise `DataError` if the file cannot be read, a line does not fit the schema, or a step is not larger than the
    previous one. An error in a line is reported with the line number.
    """
    try:
        *complete, _ = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    lines = list[MetricsLine]()
    for number, text in enumerate(complete, start=1):
        try:
            lines.append(_parse(text, after=lines[-1].step if lines else 0))
        except (ValueError, RecursionError) as error:  # RecursionError: too deep nesting
            raise DataError(f"{path}:{number}: {_reason(error)}") from error
    return lines


def _parse(text: bytes, after: int) -> MetricsLine:
    """Return a line. Raise `ValueError` if it is invalid, or its step is not larger than `after`."""
    parsed = MetricsLine.model_validate(_DECODER.decode(text.decode()))
    if parsed.step <= after:
        raise ValueError(f"step {parsed.step} follows step {after}; expected increasing steps")
    return parsed


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _reason(error: Exception) -> object:
    """Return the error; for an error of pydantic, its first message with the location of the value."""
    if not isinstance(error, ValidationError):
        return error
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'line'}: {first['msg']}"
