"""Every operation on files that a run carries out in Python: open, write, fsync, rename and the others, in order.

They are patched where the standard library calls them, so nothing of the trainer has to take part.
"""

import builtins
import io
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reference_trainer.storage import files

CHANGES = ("mkdir", "rmdir", "unlink", "remove", "rename", "replace", "symlink", "truncate")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
OPENED = "wax+"


@dataclass(frozen=True, slots=True)
class Operation:
    """number: from 1. path: the file or directory, below the watched one. half: writes half of the bytes of a write."""

    number: int
    kind: str
    path: str
    half: Callable[[], object] | None = None


class Watch:
    """From `begin` on, `act` is called before each operation below `directory`. Once begun it does not end."""

    def __init__(self, directory: Path, act: Callable[[Operation], None]) -> None:
        self.directory, self.act, self.count = directory.resolve(), act, 0

    def begin(self) -> None:
        for name in CHANGES:
            self._patch(os, name)
        self._patch(os, "fsync", lambda given: _path_of(given[0]))
        files.sync.__defaults__ = (os.fsync,)  # functions keep the one that they were defined with
        files.atomic_write.__kwdefaults__ = {"fsync": os.fsync}
        self._patch(os, "open", wanted=lambda given: bool(given[1] & WRITING))
        opened = io.open

        def watched(file: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
            if not set(mode) & set(OPENED) or isinstance(file, int) or not self._is_below(os.fspath(file)):
                return opened(file, mode, *given, **named)
            self.note("open", os.fspath(file))
            return File(opened(file, mode, *given, **named), os.fspath(file), self)

        builtins.open = io.open = watched

    def _patch(self, module: Any, name: str, path: Any = None, wanted: Any = lambda given: True) -> None:
        real = getattr(module, name)

        def patched(*given: Any, **named: Any) -> Any:
            at = path(given) if path else _joined(given[0 if name != "symlink" else 1], named.get("dir_fd"))
            if wanted(given) and self._is_below(at):
                self.note(name, at)
            return real(*given, **named)

        setattr(module, name, patched)

    def _is_below(self, path: str | bytes) -> bool:
        return Path(os.fsdecode(path)).resolve().is_relative_to(self.directory)

    def note(self, kind: str, path: str | bytes, half: Callable[[], object] | None = None) -> None:
        self.count += 1
        shown = os.path.relpath(os.fsdecode(path), self.directory)
        self.act(Operation(self.count, kind, re.sub(r"\.\d+\.partial", ".partial", shown), half))


class File:
    """An open file whose writes are watched."""

    def __init__(self, file: Any, path: str | bytes, watch: Watch) -> None:
        self._file, self._path, self._watch = file, path, watch

    def write(self, content: Any) -> Any:
        def half() -> None:
            self._file.write(content[: len(content) // 2])
            self._file.flush()

        self._watch.note("write", self._path, half)
        return self._file.write(content)

    def flush(self) -> None:
        self._watch.note("flush", self._path)
        self._file.flush()

    def truncate(self, *given: Any) -> Any:
        self._watch.note("truncate", self._path)
        return self._file.truncate(*given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *given: Any) -> None:
        self._file.close()


def _path_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


def _joined(path: str | bytes, directory: int | None) -> str:
    return os.fsdecode(path) if directory is None else f"{_path_of(directory)}/{os.fsdecode(path)}"
