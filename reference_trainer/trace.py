"""A file with every lifecycle event of a run, as lines of JSON; its schema is `reference_trainer/schema/trace.json`."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import TextIO

from reference_trainer.callbacks import Callback, Context
from reference_trainer.errors import OutputError
from reference_trainer.plan import Event

__all__ = ["TraceCallback", "schema"]


def schema() -> str:
    """The JSON Schema of one line."""
    return (files(__package__) / "schema" / "trace.json").read_text(encoding="utf-8")


_START = b'{"event": "on_train_'


class TraceCallback(Callback):
    """Writes each event as it happens; what a killed run leaves is whole lines, but perhaps the last.

    The file is made at once; an older one stays as it is until the first event takes its place. Errors: `OutputError`
    when it can't be made, or is there already (unless `force`), or when a line can't be written: a trace with a gap
    would be read as one without.
    """

    def __init__(self, path: Path, *, force: bool = False) -> None:
        self._path = path
        self._failed = False
        flags = os.O_WRONLY | os.O_CREAT
        if force:
            _refuse_what_is_no_trace(path)
        else:
            flags |= os.O_EXCL
        try:
            self._made = not os.path.lexists(path)
            self._file: TextIO = os.fdopen(os.open(path, flags, 0o666), "w", encoding="utf-8")
            self._older_bytes = os.fstat(self._file.fileno()).st_size
        except FileExistsError as error:
            raise OutputError(f"{path} exists; give another --trace, or --force to write over it") from error
        except OSError as error:
            raise OutputError(f"{path} can't be written: {error.strerror}; give another --trace") from error

    def on_train_begin(self, context: Context) -> None:
        self._write(Event.TRAIN_BEGIN, context)

    def on_epoch_begin(self, context: Context) -> None:
        self._write(Event.EPOCH_BEGIN, context)

    def on_step_end(self, context: Context) -> None:
        self._write(Event.STEP_END, context)

    def on_epoch_end(self, context: Context) -> None:
        self._write(Event.EPOCH_END, context)

    def on_train_end(self, context: Context) -> None:
        self._write(Event.TRAIN_END, context)

    def close(self) -> None:
        """Closes the file; one that was made here and got no event is removed."""
        try:
            self._file.close()
        except OSError as error:
            if not self._failed:  # else it is the same failure, and the run ends of it already
                raise self._unwritten(error) from error
        if self._made and self._path.is_file() and self._path.stat().st_size == 0:
            self._path.unlink()

    def _write(self, event: Event, context: Context) -> None:
        # JSON has no NaN and no infinity; a loss that isn't finite is written as a string.
        fields = {name: _json_number(value) for name, value in asdict(context).items()}
        try:
            if self._older_bytes:
                self._file.truncate()  # an older trace goes on no further than this one
            self._file.write(json.dumps({"event": event.value, **fields}, allow_nan=False) + "\n")
            self._file.flush()
        except OSError as error:
            self._failed = True
            raise self._unwritten(error) from error

    def _unwritten(self, error: OSError) -> OutputError:
        return OutputError(f"{self._path} can't be written any further: {error.strerror}")


def _refuse_what_is_no_trace(path: Path) -> None:
    """Force is meant for an older trace, not for the settings file that was named by mistake."""
    if not path.is_file():
        return  # not there, or refused in its own words when it is opened
    with path.open("rb") as file:
        start = file.read(len(_START))
    if start not in (b"", _START):
        raise OutputError(f"{path} holds something else than a trace; give another --trace")


def _json_number(value: float | None) -> float | str | None:
    return str(value) if value is not None and not math.isfinite(value) else value
