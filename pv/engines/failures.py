"""Classify an exception of a falsifier: the claim is refuted, the subject raised, or the falsifier is broken."""

import dis
import sys
import traceback
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from types import FrameType

from pv.engines.trial import TrialStatus
from pv.errors import BrokenMutant, NotClaimed
from pv.source.project import is_shipped, is_user_code

ASSERTION_LIBRARIES = {"testing", "_testing", "unittest", "_pytest", "pytest_mock"}
"""Parts of module names, such as `testing` in numpy.testing: assertions of these modules count as the caller's.

pytest-mock is listed because it replaces the assertions of `unittest.mock` with its own."""
SKIPS = (("_pytest.outcomes", "Skipped"), ("unittest.case", "SkipTest"))
"""Module and class of the exceptions that skip a test."""
TORCH_DEVICES = {"torch.cuda", "torch.xpu", "torch.mtia"}
"""The modules whose `_lazy_init` raises if the device, its driver or its build of torch is missing."""


class FailureClassifier:
    """Classifies exceptions by their type and their innermost frame in the project.

    1. An exception whose innermost frame in the project is in the subject gives the status `RAISED`.
    2. A failed assertion of the falsifier gives the status `REFUTED`.
    3. Any other exception is an error of the falsifier or of the environment.

    Args:
        root: The folder of the project.
        subject_files: The files of the subject.
        mutated: Whether the subject is a mutant.
        replacement: `module:qualname` of the function that a mutant swaps in; "" for none.
    """

    def __init__(
        self, root: Path, subject_files: Iterable[str], *, mutated: bool = False, replacement: str = ""
    ) -> None:
        self.root, self.mutated, self.replacement = root, mutated, replacement
        self._subject_files = tuple(subject_files)

    @cached_property
    def subject_files(self) -> set[str]:
        """Return the resolved paths of the subject's files, which are computed on first use: few trials need them."""
        return {str(Path(file).resolve()) for file in self._subject_files}

    def status(self, error: BaseException) -> TrialStatus:
        """Return the status of a trial that ended with `error`."""
        if isinstance(error, NotClaimed):
            return TrialStatus.NOT_CLAIMED
        if any(_is_instance(error, module, name) for module, name in SKIPS):
            return TrialStatus.SKIPPED
        if isinstance(error, BrokenMutant):
            return TrialStatus.INVALID_MUTANT  # such as a mutant that the write guard stopped
        # pytest.fail, and pytest.raises without an exception, raise `Failed`, which is not an AssertionError.
        if _is_instance(error, "_pytest.outcomes", "Failed"):
            return TrialStatus.REFUTED
        if is_missing_dependency(error):
            return TrialStatus.ERROR
        frames = _frames(error)
        project_frames = [frame for frame in frames if self._in_project(frame.f_code.co_filename)]
        innermost = project_frames[-1] if project_frames else None
        # A mutant with a missing name or a broken replacement fails in every call, so it is not a realistic fault.
        if self.mutated and (isinstance(error, NameError) or self._is_broken_replacement(innermost, error)):
            return TrialStatus.INVALID_MUTANT
        if innermost is not None and innermost.f_code.co_filename in self.subject_files:
            return TrialStatus.RAISED
        if isinstance(error, AssertionError):
            # An assertion refutes the claim if the falsifier, its helpers or an assertion library that they call raised
            # it. A failed assertion inside any other library is an error.
            raised_in_project = not frames or innermost is frames[-1]
            if raised_in_project or not ASSERTION_LIBRARIES.isdisjoint(_module(frames[-1]).split(".")):
                return TrialStatus.REFUTED
        return TrialStatus.ERROR

    def _is_broken_replacement(self, frame: FrameType | None, error: BaseException) -> bool:
        """Return whether the replacement function of a mutant is broken: an import, attribute or call in it fails.

        A missing attribute of None does not count, since a missing value may be the planted fault.

        Args:
            frame: The innermost frame in the project.
            error: The exception.
        """
        # With a dot after both names, `startswith` matches the function and the functions inside it, not a longer name.
        if frame is None or not f"{_module(frame)}:{frame.f_code.co_qualname}.".startswith(f"{self.replacement}."):
            return False
        # A `raise` statement in the replacement is a planted fault. An error that it raises has no `name` (ImportError)
        # and no `obj` (AttributeError). For a TypeError, the instruction shows whether a `raise` statement raised it.
        if isinstance(error, ImportError):
            return error.name is not None
        if isinstance(error, TypeError):
            return _is_raised_by_operation(error, frame)
        return isinstance(error, AttributeError) and error.obj is not None

    def frames(self, error: BaseException) -> list[str]:
        """Return the last three frames of the project with their source lines, innermost last.

        If the innermost frame in the user's code is not one of the three, it replaces the first.
        """
        project_frames = [
            frame for frame in traceback.extract_tb(error.__traceback__) if self._in_project(frame.filename)
        ]
        user_frames = [frame for frame in project_frames if is_user_code(frame.filename)]
        last = project_frames[-3:]
        if user_frames and user_frames[-1] not in last:
            last[0] = user_frames[-1]
        return [self._format(frame) for frame in last]

    def _format(self, frame: traceback.FrameSummary) -> str:
        return f"{self.relative_path(frame.filename)}:{frame.lineno} in {frame.name}: {frame.line}"

    def user_frame(self, error: BaseException) -> str:
        """Return the innermost frame outside of `pv` and of installed packages; "" if there is none."""
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if is_user_code(frame.filename):
                return self._format(frame)
        return ""

    def relative_path(self, filename: str) -> str:
        """Return the path for reports: relative to the root if the file is in the project, otherwise unchanged."""
        path = Path(filename)
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else filename

    def _in_project(self, filename: str) -> bool:
        path = Path(filename)
        return is_shipped(path) or (path.is_relative_to(self.root) and "site-packages" not in path.parts)


def is_missing_dependency(error: BaseException) -> bool:
    """Return whether an error is due to a missing package, or to a missing device of torch."""
    if isinstance(error, ModuleNotFoundError):
        return True
    frames = _frames(error)
    return bool(frames) and frames[-1].f_code.co_name == "_lazy_init" and _module(frames[-1]) in TORCH_DEVICES


def _is_instance(error: BaseException, module: str, name: str) -> bool:
    """Return whether `error` is an instance of the class `name` of a module; False if the module is not imported."""
    class_ = _class(module, name)
    return class_ is not None and isinstance(error, class_)


def _class(module: str, name: str) -> type | None:
    # Look only at loaded modules: importing pytest takes long, and an error of pytest exists only if it is loaded.
    class_ = getattr(sys.modules.get(module), name, None)
    return class_ if isinstance(class_, type) else None


def describe_error(error: BaseException) -> str:
    """Return the type and the text of an error, at most 4000 characters.

    For errors of `pv` and for skips, return the text alone; for a user's subclass of these, include the type.
    """
    text, kind = str(error).strip(), type(error)
    if text and (kind.__module__.split(".")[0] == "pv" or kind in [_class(*skip) for skip in SKIPS]):
        return text[:4000]
    return f"{kind.__name__}: {text}"[:4000] if text else kind.__name__


def _is_raised_by_operation(error: BaseException, frame: FrameType) -> bool:
    """Return whether an operation in a frame, such as a call with wrong arguments, raised the error.

    Return False if a `raise` statement or another frame raised the error.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame is not frame:
        return False
    # `tb_lasti` is the index of the instruction that raised the error: RAISE_VARARGS for a `raise` statement.
    return not dis.opname[frame.f_code.co_code[trace.tb_lasti]].startswith("RAISE")


def _frames(error: BaseException) -> list[FrameType]:
    """Return the frames of the traceback, the innermost last."""
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
