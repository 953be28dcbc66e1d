"""Classifies an exception: it refutes the claim, the subject raised it, or the falsifier itself is broken."""

import traceback
from collections.abc import Iterable
from pathlib import Path

from pv.engines.trial import TrialStatus


class Blame:
    """Classifies exceptions by their innermost frame in the project."""

    def __init__(self, root: Path, subject_files: Iterable[str], *, mutated: bool = False) -> None:
        self.root, self.mutated = root, mutated
        self.subject_files = {str(Path(file).resolve()) for file in subject_files}

    def status(self, error: BaseException) -> TrialStatus:
        """Return the status of a falsifier that ended with `error`."""
        names = {kind.__name__ for kind in type(error).__mro__}
        if names & {"Skipped", "SkipTest"}:
            return TrialStatus.SKIPPED
        if "BrokenMutant" in names:
            return TrialStatus.INVALID_MUTANT  # the fence of the hook: what the mutant then did says nothing
        # pytest.fail, and pytest.raises without an exception, raise `Failed`, which is not an AssertionError.
        if isinstance(error, AssertionError) or "Failed" in names:
            return TrialStatus.REFUTED
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if self._in_project(frame.filename)]
        if self.mutated and isinstance(error, NameError):
            return TrialStatus.INVALID_MUTANT  # a missing name is no fault that anybody could ship
        return TrialStatus.RAISED if own and own[-1].filename in self.subject_files else TrialStatus.ERROR

    def frames(self, error: BaseException) -> list[str]:
        """Return the last three frames of the project, innermost last, each with its source line."""
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if self._in_project(frame.filename)]
        return [
            f"{Path(frame.filename).relative_to(self.root)}:{frame.lineno} in {frame.name}: {frame.line}"
            for frame in own[-3:]
        ]

    def _in_project(self, filename: str) -> bool:
        path = Path(filename)
        return path.is_relative_to(self.root) and "site-packages" not in path.parts


def said(error: BaseException) -> str:
    """Return the type and text of an error, at most 4000 characters."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text}"[:4000] if text else type(error).__name__
