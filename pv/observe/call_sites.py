"""The place in the script that an event belongs to: the innermost line of the user's code."""

from __future__ import annotations

import itertools
import os
import sys
import sysconfig
import zlib
from pathlib import Path
from types import CodeType, FrameType
from typing import Optional

import torch

FRAMES_IN_KEY = 6
"""Number of innermost frames that identify a call. A small number limits the cost of `CallSites.find`."""


class CallSites:
    """Finds the line of the user's code that is being executed.

    Frames of torch, of this package, of the standard library and of installed console scripts are skipped. If no line
    of the user's code is on the stack, a line of another installed library is returned, or "?" if there is none.
    """

    def __init__(self) -> None:
        self._skipped = tuple(
            str(Path(folder).resolve()) + os.sep
            for folder in (
                Path(torch.__file__).parent,
                Path(__file__).parent,
                sysconfig.get_paths()["stdlib"],
                sysconfig.get_paths()["scripts"],
            )
        )
        # Code of `python -c` and `python -` is the user's, but has a file name in angle brackets, like generated code.
        self._main = getattr(sys.modules.get("__main__"), "__file__", None) or "<string>"
        self._kinds: dict[str, str] = {}
        """The results of `_kind` by source file."""
        self._keys: dict[tuple[object, ...], int] = {}
        """The numbers of calls, by files, first lines of functions and instruction offsets of the innermost frames."""
        self._paths: dict[str, str] = {}
        """The paths to show, by source file: relative to the working folder for the files in this folder."""

    def _kind(self, file: str) -> str:
        """Return "user", "library" or "skipped" for a source file."""
        kind = self._kinds.get(file)
        if kind is None and file.startswith("<") and file != self._main:  # generated code, and `frames.HIDDEN`
            kind = self._kinds[file] = "skipped"
        if kind is None:
            real = str(Path(file).resolve())
            if "site-packages" in real or "dist-packages" in real:
                kind = "skipped" if real.startswith(self._skipped[:2]) else "library"
            else:
                kind = "skipped" if real.startswith(self._skipped) else "user"
            self._kinds[file] = kind
        return kind

    def is_user(self, file: str) -> bool:
        """Return whether a source file belongs to the user, not to an installed library."""
        return self._kind(file) == "user"

    def _line_of(self, frame: FrameType) -> str:
        """Return "path:line" of a frame."""
        file = frame.f_code.co_filename
        if file not in self._paths:
            real = Path(file).resolve()
            try:
                self._paths[file] = str(real.relative_to(Path.cwd()))
            except (ValueError, OSError):
                self._paths[file] = str(real)
        return f"{self._paths[file]}:{frame.f_lineno}"

    def find(self, depth: int = 2) -> tuple[str, int]:
        """Return "path:line" of the current line of the user's code, and a number that identifies the call.

        Two calls on one line have different numbers. Calls from one line of a helper function have different numbers if
        different lines call the helper. The numbers are the same on every rank.

        Args:
            depth: Number of innermost frames to skip, including the frame of this method.
        """
        frame: Optional[FrameType] = sys._getframe(depth)
        calls: list[tuple[str, int, int]] = []
        codes: list[CodeType] = []
        user = library = ""
        while frame is not None and (len(calls) < FRAMES_IN_KEY or not user):
            kind = self._kind(frame.f_code.co_filename)
            if kind != "skipped":
                if len(calls) < FRAMES_IN_KEY:
                    code = frame.f_code
                    calls.append((code.co_filename, code.co_firstlineno, frame.f_lasti))
                    codes.append(code)
                if kind == "user":
                    user = user or self._line_of(frame)
                else:
                    library = library or self._line_of(frame)
            frame = frame.f_back
        # `f_lasti` is the offset of the current instruction, which differs between two calls on one line. Functions of
        # one file with equal code have equal offsets, but different first lines.
        key = tuple(calls)
        if key not in self._keys:  # crc32, because `hash` of a string is different in every process
            positions = [(*call[:2], _position_of(code, call[2])) for call, code in zip(calls, codes)]
            self._keys[key] = zlib.crc32(repr(positions).encode())
        return user or library or "?", self._keys[key]

    def is_direct(self) -> bool:
        """Return whether the user's code calls torch directly, and not through another library."""
        frame: Optional[FrameType] = sys._getframe(1)
        while frame is not None and self._kind(frame.f_code.co_filename) == "skipped":
            frame = frame.f_back
        return frame is not None and self._kind(frame.f_code.co_filename) == "user"


def _position_of(code: CodeType, offset: int) -> object:
    """Return the lines and columns of the instruction at an offset; the offset itself before Python 3.11.

    Since Python 3.11, an offset does not identify a call: a call has several instructions, and `f_lasti` may point to
    another instruction of the same call after the interpreter has specialized the call.
    """
    positions = getattr(code, "co_positions", None)
    position = next(itertools.islice(positions(), offset // 2, None), None) if positions is not None else None
    return offset if position is None or None in position else position
