"""Faulty writes and claims, for mutants that replace a whole function."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Write = Callable[[Path], object]


def written_in_place(path: Path, write: Write, **rest: Any) -> None:
    write(path)


def copied_into_place(path: Path, write: Write, *, fsync: Callable[[int], None] = os.fsync) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        shutil.copyfile(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def error_dropped(original: Any, self: Any) -> None:
    try:
        original(self)
    except BaseException:
        return
