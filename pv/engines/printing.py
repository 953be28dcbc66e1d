"""Capture the end of what an example prints. The complete output is still written to the output of the worker."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import TextIO, cast

MAX_PRINTED = 4000
"""Number of characters, at the end of the output, that are always captured."""


class _Tee:
    """A stream that also writes to a bounded buffer. All other attributes are taken from the wrapped stream."""

    def __init__(self, stream: TextIO, buffer: StringIO) -> None:
        self._stream, self._buffer = stream, buffer

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> object:
        self._buffer.write(text[-MAX_PRINTED:])
        # Trim the buffer only at twice the length: trimming at every write would copy the buffer every time.
        if self._buffer.tell() > 2 * MAX_PRINTED:
            last = self._buffer.getvalue()[-MAX_PRINTED:]
            self._buffer.seek(0)
            self._buffer.truncate()
            self._buffer.write(last)
        return self._stream.write(text)


@contextmanager
def captured_output() -> Iterator[StringIO]:
    """Capture the end of what this process writes to `sys.stdout` inside the context.

    Standard error, writes to the file descriptor and output of child processes are not captured.

    Yields:
        The buffer with the end of the output: at least `MAX_PRINTED` characters if as many are printed, and at most
        twice this number.
    """
    buffer = StringIO()
    before = sys.stdout
    sys.stdout = cast("TextIO", _Tee(before, buffer))
    try:
        yield buffer
    finally:
        sys.stdout = before
