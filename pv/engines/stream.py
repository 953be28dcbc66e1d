"""The evidence stream from a worker to its parent process.

Records are JSON lines that are written at once, so that a killed worker loses little. The arguments of the current call
are stored in a memory-mapped file, because this takes no system call. The parent process reads the arguments if the
worker ends during the call.
"""

import ast
import json
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MAX_RECORD = 1 << 20
"""Maximum length of a record in bytes; the texts of a longer record are cut."""
SLOT = "current_arguments"
"""The name of the file with the arguments of the current call, in the folder of the worker."""
SLOT_BYTES = 1 << 16
"""The size of this file."""
# The file starts with the length of the stored arguments, as an integer of _LENGTH bytes; 0 outside of a call.
_LENGTH = 4
NOTHING = bytes(_LENGTH)

Record = dict[str, Any]
"""A JSON object that a worker sends; `kind` is the kind of the record."""


class Stream:
    """Writes records to a pipe, and the arguments of the current call to a file.

    Args:
        fd: The file descriptor of the pipe.
        slot: The file for the arguments; None to store no arguments.
    """

    def __init__(self, fd: int, slot: Path | None = None) -> None:
        self.fd = fd
        self._slot = _mapped(slot) if slot is not None else None

    def begin_call(self, arguments: Mapping[str, object], *, exact: bool = True) -> None:
        """Store the arguments of a call until `end_call`.

        Args:
            arguments: The arguments, encoded as JSON. If they are too long for the file, only their names are stored.
            exact: Whether `pv.engines.encoding.decode` can rebuild the arguments.
        """
        if self._slot is None:
            return
        data = repr((arguments, exact)).encode()
        if len(data) > SLOT_BYTES - _LENGTH:
            data = repr(({name: {"$repr": "<too long>"} for name in arguments}, False)).encode()[: SLOT_BYTES - _LENGTH]
        # The mapped file keeps its content if the process is killed. A system call for every call of the code would
        # take longer than many tests.
        self._slot[: _LENGTH + len(data)] = len(data).to_bytes(_LENGTH, "little") + data

    def end_call(self) -> None:
        """Delete the stored arguments, since the call has ended."""
        if self._slot is not None:
            self._slot[:_LENGTH] = NOTHING

    def put(self, kind: str, **fields: object) -> None:
        """Write a record. If it is longer than `MAX_RECORD`, leave out the arguments and frames, and cut the texts."""
        data = json.dumps({"kind": kind, **fields}, allow_nan=False).encode() + b"\n"
        if len(data) > MAX_RECORD:
            for key in ("arguments", "frames"):
                fields.pop(key, None)
            texts = {k: v[:4096] if isinstance(v, str) else v for k, v in fields.items()}
            data = json.dumps({"kind": kind, **texts, "exact": False}, allow_nan=False).encode() + b"\n"
        while data:
            data = data[os.write(self.fd, data) :]


class Silent(Stream):
    """A stream that writes nothing, for premises: a counterexample to a premise does not refute the claim."""

    def __init__(self) -> None:
        super().__init__(-1)

    def put(self, kind: str, **fields: object) -> None:
        return


def _mapped(path: Path) -> mmap.mmap:
    """Create a file of `SLOT_BYTES` zeros, and map it into memory."""
    with path.open("w+b") as file:
        file.truncate(SLOT_BYTES)
        return mmap.mmap(file.fileno(), SLOT_BYTES)


def current_arguments(path: Path) -> tuple[dict[str, object], bool] | None:
    """Read the arguments of the call in which a worker ended, and whether they are exact.

    Return None outside of a call, for a call without arguments, and for arguments that were not completely written.
    """
    try:
        data = path.read_bytes()
        length = int.from_bytes(data[:_LENGTH], "little")
        arguments, exact = ast.literal_eval(data[_LENGTH : _LENGTH + length].decode())
        json.dumps(arguments, allow_nan=False)
    except (OSError, ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None  # nothing was written, or the worker ended while it wrote
    return (arguments, bool(exact)) if isinstance(arguments, dict) and arguments else None
