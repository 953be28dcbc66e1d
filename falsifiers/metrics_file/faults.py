"""Faulty metrics files, for mutants that replace a public function or method. `original` is the replaced one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def bare_nan(original: Any, context: Any) -> str:
    """Write NaN as Python does, which is not JSON."""
    numbers = {name: float(value) if isinstance(value, str) else value for name, value in _fields(original, context)}
    return json.dumps({**numbers, "metrics": dict(context.metrics)})


def _fields(original: Any, context: Any) -> Any:
    return json.loads(original(context)).items()


def nan_as_null(original: Any, context: Any) -> str:
    """Write NaN as null, so a diverged metric looks like a missing one."""
    return json.dumps(
        {**dict(_fields(original, context)), "metrics": {k: _null(v) for k, v in context.metrics.items()}}
    )


def _null(value: float) -> float | None:
    return value if value - value == 0 else None


def every_step_written(original: Any, self: Any, context: Any) -> None:
    """Write steps that are not logged, too, with a metric that they do not have."""
    from dataclasses import replace

    original(self, replace(context, metrics=context.metrics or {"loss": context.loss}))


def appended_on_resume(original: Any, self: Any, path: Path, *, truncate_to: int | None = None) -> None:
    """Append to the file of a killed run: the steps after its checkpoint are there twice."""
    original(self, path, truncate_to=None if truncate_to is None or not path.exists() else path.stat().st_size)


def truncated_at_once(original: Any, self: Any, path: Path, *, truncate_to: int | None = None) -> None:
    """Truncate before the resumed run has begun."""
    original(self, path, truncate_to=truncate_to)
    if truncate_to is not None:
        path.write_bytes(path.read_bytes()[:truncate_to])


def any_length_accepted(original: Any, self: Any, path: Path, *, truncate_to: int | None = None) -> None:
    """Resume at any length: a file of another run is cut inside a line, or filled with zeros."""
    if truncate_to is not None and path.exists():
        older = path.read_bytes()
        path.write_bytes(older[: truncate_to - 1].ljust(truncate_to - 1) + b"\n")
    original(self, path, truncate_to=truncate_to)


def existing_file_replaced(original: Any, self: Any, path: Path, *, truncate_to: int | None = None) -> None:
    """Replace an existing file."""
    path.unlink(missing_ok=truncate_to is None)
    original(self, path, truncate_to=None)


def earlier_run_continued(original: Any, self: Any, context: Any) -> None:
    """Write the lines of any run below those of the one before."""
    self._last = (0, self._length)
    original(self, context)


def empty_file_left(original: Any, self: Any, path: Path, **rest: Any) -> None:
    """Leave an empty file behind."""
    original(self, path, **rest)
    close = self.close

    def closed() -> None:
        close()
        path.touch()

    self.close = closed


def malformed_lines_skipped(original: Any, path: Path) -> Any:
    """Skip lines that are malformed."""
    from reference_trainer.errors import DataError

    try:
        return original(path)
    except DataError:
        return []


def incomplete_line_is_an_error(original: Any, path: Path) -> Any:
    """Raise for the incomplete last line of a killed run."""
    from reference_trainer.errors import DataError

    if path.is_file() and not path.read_bytes().endswith(b"\n") and path.stat().st_size:
        raise DataError(f"{path} ends within a line")
    return original(path)


def evaluated_line_appended(self: Any, context: Any) -> None:
    """Write a line of its own for an evaluation."""
    from reference_trainer.training.metrics_file import line

    if context.validation_metrics:
        self._length += self._file.write(line(context))


def evaluation_not_written(self: Any, context: Any) -> None:
    """Write nothing."""


def last_line_replaced(original: Any, self: Any, context: Any) -> None:
    """Replace the last line, whatever its step."""
    if context.validation_metrics:
        self._last = (context.step, self._last[1])
    original(self, context)
