"""Prevent generated mutants from removing files and from writing to the project.

Standard library only: it runs inside code under contract.
"""

import os
from typing import Any

from pv.errors import BrokenMutant, MutantProblem


class WriteGuard:
    """An audit hook that raises BrokenMutant when a generated mutant removes a file or writes to the project.

    It prevents accidents, not attacks: a mutant is made of the code under contract, whose author is trusted.
    """

    REMOVE = frozenset({"os.remove", "os.rmdir", "os.rename", "shutil.rmtree", "shutil.move"})

    def __init__(self, project: list[str], own: str) -> None:
        self.project, self.own = project, own

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in self.REMOVE and not any(isinstance(a, int) and a >= 0 for a in arguments[1:]):
            for path in arguments[:2]:  # a relative path below a `dir_fd` is part of an rmtree that was checked
                if isinstance(path, str | bytes | os.PathLike) and not self._below(path, [self.own]):
                    raise BrokenMutant(MutantProblem.FORBIDDEN, f"it may not do {event} on {os.fsdecode(path)}")
        elif event == "open" and isinstance(arguments[0], str | bytes) and set(arguments[1] or "") & set("wax+"):
            if self._below(arguments[0], self.project) and not self._below(arguments[0], [self.own]):
                raise BrokenMutant(MutantProblem.FORBIDDEN, f"it may not write {os.fsdecode(arguments[0])}")

    def _below(self, path: str | bytes | os.PathLike[str], folders: list[str]) -> bool:
        real_path = os.path.realpath(os.fsdecode(path))
        return any(real_path == folder or real_path.startswith(folder + os.sep) for folder in folders)
