"""Code objects kept on disk, so that the workers of one run compile each module once.

Standard library only: it runs before everything else.
"""

import contextlib
import hashlib
import marshal
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import CodeType


def load_or_compile(folder: str, key: tuple[object, ...], source: bytes, compiled: Callable[[], CodeType]) -> CodeType:
    """Return what `compiled` returns for `source`, from `folder` if a worker kept it there under the same key.

    Nothing is kept if `folder` is empty. If a file cannot be read or written, the module is compiled.
    """
    if not folder:
        return compiled()
    file = Path(folder, hashlib.sha256(repr(key).encode() + b"\0" + source).hexdigest())
    try:
        code: CodeType = marshal.loads(file.read_bytes())
    except (OSError, EOFError, ValueError, TypeError):
        code = compiled()
        with contextlib.suppress(OSError):
            _write(file, marshal.dumps(code))
    return code


def _write(file: Path, data: bytes) -> None:
    """Write the file whole or not at all: other workers read it, and a worker can be killed at any time."""
    file.parent.mkdir(exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
    Path(name).replace(file)
