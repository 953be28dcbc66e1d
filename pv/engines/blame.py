"""Says whose exception it is: the claim's, the subject's, or the falsifier's own."""

import traceback
from collections.abc import Iterable
from pathlib import Path

from pv.evidence import Ending


class Blame:
    """Tells endings apart by the innermost frame that lies in the project."""

    def __init__(self, root: Path, subject_files: Iterable[str], *, mutated: bool = False) -> None:
        self.root, self.mutated = root, mutated
        self.subject_files = {str(Path(file).resolve()) for file in subject_files}

    def ending(self, error: BaseException) -> Ending:
        """How a falsifier that ended with `error` ended."""
        names = {kind.__name__ for kind in type(error).__mro__}
        if names & {"Skipped", "SkipTest"}:
            return Ending.SKIPPED
        if "BrokenMutant" in names:
            return Ending.VOID  # the fence of the hook: what the mutant then did says nothing
        # pytest.fail and a pytest.raises that saw nothing raise `Failed`, which is no AssertionError.
        if isinstance(error, AssertionError) or "Failed" in names:
            return Ending.REFUTED
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if self._in_project(frame.filename)]
        if self.mutated and isinstance(error, NameError):
            return Ending.BROKEN  # a mutant that names what is not there is no fault anybody made
        return Ending.RAISED if own and own[-1].filename in self.subject_files else Ending.BROKEN

    def frames(self, error: BaseException) -> list[str]:
        """The last frames of the project, innermost last, each with its source line."""
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if self._in_project(frame.filename)]
        return [
            f"{Path(frame.filename).relative_to(self.root)}:{frame.lineno} in {frame.name}: {frame.line}"
            for frame in own[-3:]
        ]

    def _in_project(self, filename: str) -> bool:
        path = Path(filename)
        return path.is_relative_to(self.root) and "site-packages" not in path.parts


def said(error: BaseException) -> str:
    """The error as one short text."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text}"[:4000] if text else type(error).__name__
