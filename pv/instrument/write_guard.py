"""Prevent generated mutants from removing files and from writing to the project.

Standard library only: it runs inside code under contract.
"""

import os
from typing import Any

from pv.errors import BrokenMutant, MutantProblem

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class WriteGuard:
    """An audit hook that raises BrokenMutant when a generated mutant removes a file or writes to the project.

    It prevents accidents, not attacks: a mutant is made of the code under contract, whose author is trusted.

    Args:
        project: The folders in which no file may be written.
        workspace: The folder of the workers, in which files may be written and removed.
    """

    REMOVE = frozenset({"os.remove", "os.rmdir", "os.rename", "shutil.rmtree", "shutil.move"})

    def __init__(self, project: list[str], workspace: str) -> None:
        self.project, self.workspace = project, workspace

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        # A path relative to a `dir_fd` (an argument from 0) is in a folder whose `shutil.rmtree` was checked.
        if event in self.REMOVE and not any(isinstance(a, int) and a >= 0 for a in arguments[1:]):
            for path in arguments[:2]:
                if isinstance(path, str | bytes | os.PathLike) and not self._below(path, [self.workspace]):
                    raise BrokenMutant(MutantProblem.FORBIDDEN, f"it may not do {event} on {os.fsdecode(path)}")
        elif event == "open" and isinstance(arguments[0], str | bytes):
            path, mode, flags = arguments
            # `os.open` has no mode, and its relative path may be relative to a `dir_fd`, which the event does not have.
            writes = set(mode) & set("wax+") if mode else flags & WRITING and os.fsdecode(path).startswith(os.sep)
            if writes and self._below(path, self.project) and not self._below(path, [self.workspace]):
                raise BrokenMutant(MutantProblem.FORBIDDEN, f"it may not write {os.fsdecode(path)}")

    def _below(self, path: str | bytes | os.PathLike[str], folders: list[str]) -> bool:
        real_path = os.path.realpath(os.fsdecode(path))
        return any(real_path == folder or real_path.startswith(folder + os.sep) for folder in folders)
