"""Code objects kept on disk, so that the workers of one run compile each module once.

Standard library only: it runs before everything else.
"""

import contextlib
import dataclasses
import hashlib
import marshal
import os
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

UNFINISHED = "."
_held: dict[str, CodeType] = {}
"""What a fork server has read, for its forks."""


def load_or_compile(folder: str, key: tuple[object, ...], source: bytes, compiled: Callable[[], CodeType]) -> CodeType:
    """Return what `compiled` returns for `source`, from `folder` if a worker kept it there under the same key.

    Nothing is kept if `folder` is "". If a file cannot be read or written, the module is compiled.
    """
    if not folder:
        return compiled()
    name = hashlib.sha256(repr(key).encode() + b"\0" + source).hexdigest()
    if name in _held:
        return _held[name]
    file = Path(folder, name)
    try:
        return _read(file)
    except (OSError, EOFError, ValueError, TypeError):
        code = compiled()
        with contextlib.suppress(OSError):
            _write(file, marshal.dumps(code))
        return code


def hold(folder: Path) -> None:
    """Read what workers have kept in `folder` since the last call, so that forks of this process need not."""
    with contextlib.suppress(OSError):
        _hold(folder, folder.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _hold(folder: Path, _changed: int) -> None:
    # `_changed`, the time of the folder's last change, is a part of the key of `lru_cache`.
    for file in folder.iterdir():
        if file.name not in _held and not file.name.startswith(UNFINISHED):
            with contextlib.suppress(OSError, EOFError, ValueError, TypeError):
                _held[file.name] = _read(file)


def keep_dataclasses(folder: str) -> None:
    """Keep the methods of dataclasses too, which the standard library writes as text, until `leave_dataclasses`."""

    def execute(source: str, *namespaces: Any) -> None:
        text = source.encode()
        exec(load_or_compile(folder, (), text, lambda: compile(text, "<string>", "exec")), *namespaces)

    vars(dataclasses)["exec"] = execute  # before the builtin function of this name


def leave_dataclasses() -> None:
    """Let the standard library compile the methods of dataclasses itself again."""
    vars(dataclasses).pop("exec", None)


def _read(file: Path) -> CodeType:
    code: CodeType = marshal.loads(file.read_bytes())
    return code


def _write(file: Path, data: bytes) -> None:
    """Write the file whole or not at all: other workers read it, and a worker can be killed at any time."""
    file.parent.mkdir(exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=UNFINISHED, dir=file.parent)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
    Path(name).replace(file)
