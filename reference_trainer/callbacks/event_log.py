"""Observers that write lines of JSON: the events of a run, and the resources that it uses."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from reference_trainer.callbacks.base import event_of
from reference_trainer.callbacks.context import Context
from reference_trainer.callbacks.line_file import LineFile
from reference_trainer.callbacks.observers import Observer
from reference_trainer.errors import OutputError

__all__ = ["EVENTS", "EventLog", "ResourceLog"]

EVENTS = ("on_train_begin", "on_log", "on_evaluate", "on_save", "on_epoch_end", "on_train_end")
_FIELDS = (
    "hook run attempt rank step epoch micro_batch loss learning_rate gradient_norm elapsed_s tokens sequences memory "
    "metrics batch_metrics validation_metrics checkpoint_path"
)


class EventLog(Observer):
    """Observer that appends each event to a file, as one line of strict JSON; rank 0 writes.

    hooks: the events that are written. The lines of a run that was killed and resumed stay, and some events come twice:
    `attempt` tells them apart. Raise `OutputError` if the file cannot be opened, `CallbackError` for an unknown hook.
    """

    def __init__(self, path: str | Path, *, hooks: Iterable[str] = EVENTS) -> None:
        self._file = _opened(path)
        for hook in hooks:
            setattr(self, event_of(hook).value, partial(_write, self._file, _FIELDS))


class ResourceLog(Observer):
    """Observer that appends learning rate, memory, processor time and speed of each logged step to a file.

    cpu_s: seconds of all threads of the process since it began. Every rank writes, of several each its own file.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._file: LineFile | None = None

    def on_log(self, context: Context) -> None:
        if self._file is None:
            suffix = f".rank{context.rank}{self._path.suffix}" if context.world_size > 1 else self._path.suffix
            self._file = _opened(self._path.with_suffix(suffix))
        fields = "run attempt rank step learning_rate memory elapsed_s steps_per_s tokens_per_s"
        _write(self._file, fields, context, cpu_s=time.process_time())


def _opened(path: str | Path) -> LineFile:
    try:
        return LineFile(Path(path), "ab")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from error


def _write(file: LineFile, fields: str, context: Context, **others: float) -> None:
    if context.is_world_process_zero or others:
        values = {name: getattr(context, name) for name in fields.split()} | others
        file.write(json.dumps({name: _json_value(value) for name, value in values.items()}))


def _json_value(value: Any) -> Any:
    """Return the value for JSON, which has neither NaN nor infinity: they are written as strings."""
    if isinstance(value, Mapping):
        return {name: _json_value(item) for name, item in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
