"""Keeps what the last example printed, while it is still written to the output of the worker."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any, TextIO, cast

MAX_PRINTED = 4000


class _Tee:
    """Writes text to a stream and to a buffer that is bounded; otherwise it is the stream."""

    def __init__(self, stream: Any, kept: StringIO) -> None:
        self._stream, self._kept = stream, kept

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> Any:
        self._kept.write(text[-MAX_PRINTED:])
        if self._kept.tell() > 2 * MAX_PRINTED:
            last = self._kept.getvalue()[-MAX_PRINTED:]
            self._kept.seek(0)
            self._kept.truncate()
            self._kept.write(last)
        return self._stream.write(text)


@contextmanager
def kept_output() -> Iterator[StringIO]:
    """Keep the end of what is printed in the body, up to twice `MAX_PRINTED` characters, but not of child processes."""
    kept = StringIO()
    before = sys.stdout
    sys.stdout = cast("TextIO", _Tee(before, kept))
    try:
        yield kept
    finally:
        sys.stdout = before
