"""Write the trace of a run: one line of JSON per event; `trace.json` beside this file is the schema of a line."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from reference_trainer.callbacks.base import Callback, Context
from reference_trainer.callbacks.metrics_file import LineFile
from reference_trainer.errors import OutputError
from reference_trainer.plan.schedule import Event


def schema() -> str:
    """Return the JSON Schema of one line."""
    return (files(__package__) / "trace.json").read_text(encoding="utf-8")


def line(event: Event, context: Context) -> str:
    """Return the line of an event, without the newline.

    JSON has neither NaN nor infinity: a number that is not finite is written as a string.
    """
    fields = {name: _json_value(getattr(context, name)) for name in _FIELDS}
    return json.dumps({"event": event.value, **fields})


_FIELDS = (
    "step epoch loss learning_rate best_loss elapsed_s tokens epochs steps_per_epoch total_steps metrics "
    "validation_metrics".split()
)
_START = b'{"event": "on_train_'  # the beginning of every trace file


class TraceCallback(Callback):
    """Callback that writes events as they happen; after a killed run only the last line may be incomplete.

    The events are the begin and the end of the run and of epochs, evaluations and the ends of steps. The file is
    created at once; with `force`, an older trace is kept until the first event is written. Raise `OutputError` if the
    file cannot be created, exists already without `force`, or is not a trace with `force`, and if a line cannot be
    written, because a trace with a gap would look complete.
    """

    def __init__(self, path: Path, *, force: bool = False) -> None:
        if force:
            _refuse_other_file(path)
        try:
            self._file = LineFile(path, "ab" if force else "xb")
            self._older_bytes = path.stat().st_size
        except FileExistsError as error:
            raise OutputError(f"{path} exists; give another --trace, or --force to overwrite it") from error
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror}; give another --trace") from error

    def on_train_begin(self, context: Context) -> None:
        self._write(Event.TRAIN_BEGIN, context)

    def on_epoch_begin(self, context: Context) -> None:
        self._write(Event.EPOCH_BEGIN, context)

    def on_evaluate(self, context: Context) -> None:
        self._write(Event.EVALUATE, context)

    def on_step_end(self, context: Context) -> None:
        self._write(Event.STEP_END, context)

    def on_epoch_end(self, context: Context) -> None:
        self._write(Event.EPOCH_END, context)

    def on_train_end(self, context: Context) -> None:
        self._write(Event.TRAIN_END, context)

    def close(self) -> None:
        """Close the file. `LineFile.close` removes the file if it was created here and no event was written."""
        self._file.close()

    def _write(self, event: Event, context: Context) -> None:
        if self._older_bytes:  # the first event replaces an older trace
            self._file.truncate(0)
            self._older_bytes = 0
        self._file.write(line(event, context))


def _refuse_other_file(path: Path) -> None:
    """Raise `OutputError` if the file is not a trace, so that `force` cannot overwrite a settings file by mistake.

    Raise it also if the file cannot be read.
    """
    try:
        if not path.is_file():
            return  # missing, or refused when it is opened
        with path.open("rb") as file:
            start = file.read(len(_START))
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror}; give another --trace") from error
    if start not in (b"", _START):
        raise OutputError(f"{path} is not a trace file; give another --trace")


def _json_value(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _json_value(item) for name, item in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
