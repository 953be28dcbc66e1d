"""A cache of code objects on disk, so that the workers of one run compile each module once.

This module imports only the standard library, because it runs before all other code.
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

UNFINISHED = "."
"""The first character of the names of files that are being written."""
_inherited: dict[str, CodeType] = {}
"""The code objects that a fork server has read, by file name; its forks inherit them."""


def load_or_compile(folder: str, key: tuple[object, ...], source: bytes, compile_: Callable[[], CodeType]) -> CodeType:
    """Return the code object of a source from the cache, or compile and store it.

    If a file of the cache cannot be read, the source is compiled. Errors of the file system are ignored.

    Args:
        folder: The folder of the cache; "" to compile without a cache.
        key: The data that the code object depends on, except the source.
        source: The source.
        compile_: Returns the code object of the source.
    """
    if not folder:
        return compile_()
    name = hashlib.sha256(repr(key).encode() + b"\0" + source).hexdigest()
    if name in _inherited:
        return _inherited[name]
    file = Path(folder, name)
    try:
        return _read(file)
    except (OSError, EOFError, ValueError, TypeError):
        code = compile_()
        with contextlib.suppress(OSError):
            _write(file, marshal.dumps(code))
        return code


def preload(folder: Path) -> None:
    """Read the code objects that were stored since the last call, so that later forks of this process inherit them."""
    with contextlib.suppress(OSError):
        _preload(folder, folder.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _preload(folder: Path, _changed: int) -> None:
    # `_changed` is only a key of `lru_cache`: the folder is read again after a change.
    for file in folder.iterdir():
        if file.name not in _inherited and not file.name.startswith(UNFINISHED):
            with contextlib.suppress(OSError, EOFError, ValueError, TypeError):
                _inherited[file.name] = _read(file)


def cache_dataclasses(folder: str) -> None:
    """Cache the code of the methods that `dataclasses` generates, until `stop_caching_dataclasses` is called."""

    def execute(source: str, *namespaces: dict[str, object]) -> None:
        text = source.encode()
        exec(load_or_compile(folder, (), text, lambda: compile(text, "<string>", "exec")), *namespaces)

    vars(dataclasses)["exec"] = execute  # the module `dataclasses` then calls `execute` instead of the builtin `exec`


def stop_caching_dataclasses() -> None:
    """Stop caching the methods of dataclasses."""
    vars(dataclasses).pop("exec", None)


def _read(file: Path) -> CodeType:
    code: CodeType = marshal.loads(file.read_bytes())
    return code


def _write(file: Path, data: bytes) -> None:
    """Write the file atomically, since other workers read it and this worker can be killed at any time."""
    file.parent.mkdir(exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=UNFINISHED, dir=file.parent)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
    Path(name).replace(file)
