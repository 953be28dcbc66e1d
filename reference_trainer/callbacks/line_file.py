"""File of lines that are written one by one; after a killed run only the last line may be incomplete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from reference_trainer.errors import OutputError

__all__ = ["LineFile"]


class LineFile:
    """Open file of lines. Raise `OutputError` with the path, once, if a line or the end cannot be written.

    `mode` is a binary mode of `open`, whose `OSError` is raised as it is: the caller knows the remedy.
    """

    def __init__(self, path: Path, mode: str) -> None:
        self._path = path
        self._failed = False
        self._made = not os.path.lexists(path)
        self._file: IO[bytes] = path.open(mode)

    def goes_to_end_of_line(self, length: int) -> bool:
        """Return whether a line ends after `length` bytes; the next line is written there."""
        self._file.seek(max(length - 1, 0))
        return length == 0 or self._file.read(1) == b"\n"

    def truncate(self, length: int) -> None:
        """Keep the first `length` bytes, and write after them."""
        with self._failures_named():
            self._file.seek(length)
            self._file.truncate(length)

    def write(self, line: str) -> int:
        """Write and flush a line, given without its end, and return its bytes."""
        text = line.encode() + b"\n"
        with self._failures_named():
            self._file.write(text)
            self._file.flush()
        return len(text)

    def close(self) -> None:
        """Close the file, and remove it if it was created here and no line was written."""
        try:
            self._file.close()
        except OSError as error:
            if not self._failed:  # otherwise the same failure was raised before
                raise self._unwritten(error) from error
        if self._made and self._path.is_file() and self._path.stat().st_size == 0:
            self._path.unlink()

    @contextmanager
    def _failures_named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._failed = True
            raise self._unwritten(error) from error

    def _unwritten(self, error: OSError) -> OutputError:
        return OutputError(f"cannot write to {self._path}: {error.strerror}")
