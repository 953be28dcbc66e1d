"""Capture the output of the last example, and still write it to the output of the worker."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import TextIO, cast

MAX_PRINTED = 4000


class _Tee:
    """Wraps a stream: writes also to a bounded buffer, and passes all other attributes on to the stream."""

    def __init__(self, stream: TextIO, buffer: StringIO) -> None:
        self._stream, self._buffer = stream, buffer

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> object:
        self._buffer.write(text[-MAX_PRINTED:])
        # Trim rarely: cutting the buffer at every write would be quadratic.
        if self._buffer.tell() > 2 * MAX_PRINTED:
            last = self._buffer.getvalue()[-MAX_PRINTED:]
            self._buffer.seek(0)
            self._buffer.truncate()
            self._buffer.write(last)
        return self._stream.write(text)


@contextmanager
def kept_output() -> Iterator[StringIO]:
    """Capture the end of the output of the body, at most twice `MAX_PRINTED` characters, without child processes."""
    buffer = StringIO()
    before = sys.stdout
    sys.stdout = cast("TextIO", _Tee(before, buffer))
    try:
        yield buffer
    finally:
        sys.stdout = before
