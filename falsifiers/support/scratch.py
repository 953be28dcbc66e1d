"""New directories, files that are damaged, and files that are open."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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


def cut(path: Path, part: float = 0.5) -> None:
    """Keep the first part of a file."""
    os.truncate(path, int(path.stat().st_size * part))


def reconfigure(path: Path, **changes: Any) -> None:
    """Change entries of a JSON object in a file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def held(path: Path) -> list[int]:
    """Return the descriptors of this process open on the path or below it, including deleted files."""
    descriptors = {int(each.name): _place(each) for each in Path("/proc/self/fd").iterdir()}
    return sorted(number for number, place in descriptors.items() if place and place.is_relative_to(path.resolve()))


def _place(descriptor: Path) -> Path | None:
    try:
        return Path(str(descriptor.readlink()).removesuffix(" (deleted)"))
    except OSError:  # the descriptor with which the directory was listed
        return None
