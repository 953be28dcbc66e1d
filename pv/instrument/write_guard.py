"""Prevent generated mutants from removing files and from writing to the project."""

import os
from typing import Any

from pv.errors import BrokenMutant, MutantProblem

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
"""Flags with which `os.open` may create or change a file."""


class WriteGuard:
    """An audit hook that raises BrokenMutant when a generated mutant removes or moves a file, or writes to the project.

    The guard prevents accidents, not attacks: a mutant is a small change of the code under contract, whose author is
    trusted.

    Args:
        project: The folders in which no file may be written.
        workspace: The folder of the workers, in which files may be written and removed.
    """

    REMOVE = frozenset({"os.remove", "os.rmdir", "os.rename", "shutil.rmtree", "shutil.move"})

    def __init__(self, project: list[str], workspace: str) -> None:
        self.project, self.workspace = project, workspace

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        # An argument that is a descriptor (an integer from 0 on) is a `dir_fd`, to which the path is relative. Such
        # calls come from `shutil.rmtree`, whose own event was checked.
        if event in self.REMOVE and not any(isinstance(a, int) and a >= 0 for a in arguments[1:]):
            for path in arguments[:2]:
                if isinstance(path, str | bytes | os.PathLike) and not self._is_below(path, [self.workspace]):
                    raise BrokenMutant(MutantProblem.FORBIDDEN, f"a mutant may not call {event} on {os.fsdecode(path)}")
        elif event == "open" and isinstance(arguments[0], str | bytes):
            path, mode, flags = arguments
            # The event of `os.open` has no mode. A relative path is then not checked, because the path may be relative
            # to a `dir_fd`, which the event does not contain.
            writes = set(mode) & set("wax+") if mode else flags & WRITING and os.fsdecode(path).startswith(os.sep)
            if writes and self._is_below(path, self.project) and not self._is_below(path, [self.workspace]):
                raise BrokenMutant(MutantProblem.FORBIDDEN, f"a mutant may not write {os.fsdecode(path)}")

    def _is_below(self, path: str | bytes | os.PathLike[str], folders: list[str]) -> bool:
        """Return whether a path, with links resolved, is one of the folders or inside one."""
        real_path = os.path.realpath(os.fsdecode(path))
        return any(real_path == folder or real_path.startswith(folder + os.sep) for folder in folders)
