"""New directories, and files that are damaged."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch() -> Iterator[Path]:
    """A new directory, removed at the end; a faulty subject may still write while it is removed."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        yield Path(name).resolve()


def flip(path: Path, at: int = -1) -> None:
    """Change one bit of a file, by default of its last byte."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
