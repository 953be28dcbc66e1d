"""Metrics of a run: a file with one line of JSON per logged or evaluated step; `metrics.json` here is its schema."""

from __future__ import annotations

import json
import math
import os
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from reference_trainer.callbacks.base import Callback, Context
from reference_trainer.callbacks.line_file import LineFile
from reference_trainer.errors import DataError, OutputError

__all__ = ["FILE", "MetricsCallback", "MetricsLine", "line", "read_metrics", "schema"]

FILE = "metrics.jsonl"
"""Name of the metrics file in the directory of a run."""

_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_Number = Annotated[float, BeforeValidator(lambda read: _NOT_FINITE.get(read, read) if isinstance(read, str) else read)]


class MetricsLine(BaseModel):
    """The metrics of a logged or evaluated step, as read from a file. Fields are those of `Context`."""

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
    """Return the line of a logged or evaluated step, without its end; metrics on held-back text are among the others.

    JSON has neither NaN nor infinity: a number that is not finite is written as a string.
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
    """Callback that writes each step that has metrics; after a killed run only the last line may be incomplete.

    A step that is logged and evaluated has one line, which is written when it is logged and replaced when its
    evaluation is there.

    Without `truncate_to` the file must not exist. With it, the file keeps its first `truncate_to` bytes, such as the
    `length` that was recorded with a checkpoint, and a resumed run goes on from there; 0 starts over. The file is
    opened at once; the rest is removed when the run begins. Raise `OutputError` if the file cannot be opened, exists,
    has no line that ends at `truncate_to`, or a line cannot be written, and if a run begins before the last line: each
    run has a callback of its own.
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
        if not self._file.goes_to_end_of_line(self._length):
            self.close()
            raise OutputError(
                f"{path} has no line that ends at byte {self._length}, where the run goes on; restore the file of that "
                "run, or resume by the path of its checkpoint into another --out"
            )

    @property
    def length(self) -> int:
        """Return the bytes of the lines so far. A run that resumes after this step passes it as `truncate_to`."""
        return self._length

    def on_train_begin(self, context: Context) -> None:
        if context.step < self._last[0]:
            raise OutputError(
                f"{self._path} has the metrics of step {self._last[0]}, and a run begins at step {context.step}; give "
                "each run a MetricsCallback of its own"
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
    """Return the lines of a metrics file. A last line without its end is left out: the run was killed.

    Raise `DataError`, with file and line number, for a line that does not fit the schema or whose step is not larger
    than the one before; and if the file cannot be read.
    """
    try:
        *complete, _ = path.read_bytes().split(b"\n")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    read = list[MetricsLine]()
    for number, text in enumerate(complete, start=1):
        try:
            read.append(_parsed(text, after=read[-1].step if read else 0))
        except ValueError as error:
            raise DataError(f"{path}:{number}: {_reason(error)}") from error
    return read


def _parsed(text: bytes, after: int) -> MetricsLine:
    parsed = MetricsLine.model_validate(_DECODER.decode(text.decode()))
    if parsed.step <= after:
        raise ValueError(f"step {parsed.step} follows step {after}; expected increasing steps")
    return parsed


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _reason(error: ValueError) -> object:
    """Return the error, or the first finding of pydantic with the place of the value in the line."""
    if not isinstance(error, ValidationError):
        return error
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'line'}: {first['msg']}"
