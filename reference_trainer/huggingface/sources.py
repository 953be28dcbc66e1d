"""The rows of a JSON-lines or Parquet file, or of a dataset that `save_to_disk` of `datasets` wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reference_trainer.errors import DataError, first_line, similar_path
from reference_trainer.storage.files import file_digest

__all__ = ["digest_of", "rows_of"]

STATE = "state.json"
BATCH = 1000
"""Rows of a Parquet file that are in memory at once."""


def rows_of(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield each row, with where it is. Raise `DataError`, with the file and the line, for what cannot be read."""
    try:
        if path.is_dir():
            yield from ((f"{path}: row {n}", row) for n, row in enumerate(_saved_rows(path), 1))
        elif path.suffix == ".parquet":
            yield from ((f"{path}: row {n}", row) for n, row in enumerate(_parquet_rows(path), 1))
        else:
            with path.open(encoding="utf-8-sig") as file:
                lines = ((f"{path}:{n}", line) for n, line in enumerate(file, 1) if line.strip())
                yield from ((where, _json(where, line)) for where, line in lines)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}{similar_path(path)}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}; expected JSON lines or a .parquet file") from error


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, or of the digests of a dataset's files in their order, in hexadecimal digits.

    Errors: those of `rows_of`.
    """
    try:
        if not path.is_dir():
            return file_digest(path)
        return hashlib.sha256("".join(map(file_digest, _files(path))).encode()).hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}{similar_path(path)}") from error


def _parquet_rows(path: Path) -> Iterator[Any]:
    import pyarrow
    from pyarrow import parquet

    try:
        for batch in parquet.ParquetFile(path).iter_batches(BATCH):
            yield from batch.to_pylist()
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"cannot read {path}: {first_line(error)}; expected a Parquet file") from error


def _saved_rows(directory: Path) -> Iterator[Any]:
    import pyarrow

    for file in _files(directory):
        try:
            with pyarrow.OSFile(str(file)) as source:  # mapped pages would count as memory of the process
                for batch in pyarrow.ipc.open_stream(source):
                    yield from batch.to_pylist()
        except pyarrow.ArrowInvalid as error:
            raise DataError(f"{file} is not an Arrow stream: {error}; expected a file of a saved dataset") from error


def _files(directory: Path) -> list[Path]:
    """Return the files of a dataset, in the order of its rows."""
    try:
        state = json.loads((directory / STATE).read_text(encoding="utf-8"))
        return [directory / entry["filename"] for entry in state["_data_files"]]
    except FileNotFoundError as error:
        splits = sorted(entry.name for entry in directory.iterdir() if (entry / STATE).exists())
        hint = f"one of its splits, such as {directory / splits[0]}" if splits else "what `save_to_disk` writes"
        raise DataError(f"{directory} is not a saved dataset: missing {STATE}; expected {hint}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{directory / STATE} does not name the files of a dataset: {error!r}") from error


def _json(where: str, line: str) -> Any:
    try:
        return json.loads(line.rstrip())
    except json.JSONDecodeError as error:
        at = f"in column {error.colno}: {error.msg}"
        raise DataError(f"{where}: invalid JSON {at}; expected an object on each line") from error
    except ValueError as error:  # a number of too many digits
        raise DataError(f"{where}: invalid JSON: {error}; expected an object on each line") from error
