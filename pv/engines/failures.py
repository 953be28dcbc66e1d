"""Classify an exception: it refutes the claim, the subject raised it, or the falsifier itself is broken."""

import dis
import sys
import traceback
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from types import FrameType

from pv.engines.trial import TrialStatus
from pv.errors import BrokenMutant, NotClaimed
from pv.source.project import is_shipped, is_users

ASSERTING = ("testing", "_testing", "unittest", "_pytest", "pytest_mock")
"""Parts of the names of modules whose assertions count as assertions of the caller, such as numpy.testing.

pytest-mock replaces the assertions of `unittest.mock` with its own."""
SKIPS = (("_pytest.outcomes", "Skipped"), ("unittest.case", "SkipTest"))
DEVICES = {"torch.cuda", "torch.xpu", "torch.mtia"}
"""The modules whose `_lazy_init` raises if the device, its driver or its build of torch is missing."""


class FailureClassifier:
    """Classifies exceptions by their innermost frame in the project.

    An AssertionError of the falsifier refutes the claim; an exception of the subject means that it raised;
    anything else is an error of the falsifier or environment.

    Args:
        root: The folder of the project.
        subject_files: The files of the subject.
        mutated: Whether the subject is a mutant.
        replacement: The function that a mutant swaps in; "" for none.
    """

    def __init__(
        self, root: Path, subject_files: Iterable[str], *, mutated: bool = False, replacement: str = ""
    ) -> None:
        self.root, self.mutated, self.replacement = root, mutated, replacement
        self._subject_files = tuple(subject_files)

    @cached_property
    def subject_files(self) -> set[str]:
        """Return the resolved paths of the subject's files. They are computed late: only exceptions need them."""
        return {str(Path(file).resolve()) for file in self._subject_files}

    def status(self, error: BaseException) -> TrialStatus:
        """Return the status of a falsifier that ended with `error`."""
        if isinstance(error, NotClaimed):
            return TrialStatus.NOT_CLAIMED
        if any(_is_instance(error, module, name) for module, name in SKIPS):
            return TrialStatus.SKIPPED
        if isinstance(error, BrokenMutant):
            return TrialStatus.INVALID_MUTANT  # the write guard stopped the mutant, so its effect is unknown
        # pytest.fail, and pytest.raises without an exception, raise `Failed`, which is not an AssertionError.
        if _is_instance(error, "_pytest.outcomes", "Failed"):
            return TrialStatus.REFUTED
        if is_missing_dependency(error):
            return TrialStatus.ERROR
        project_frames = [frame for frame in _frames(error) if self._in_project(frame.f_code.co_filename)]
        if self.mutated and (
            isinstance(error, NameError) or (project_frames and self._is_broken(project_frames[-1], error))
        ):
            return TrialStatus.INVALID_MUTANT  # code with a missing name would fail everywhere: no realistic fault
        if isinstance(error, AssertionError) and self._is_about_claim(error):
            return TrialStatus.REFUTED
        return (
            TrialStatus.RAISED
            if project_frames and project_frames[-1].f_code.co_filename in self.subject_files
            else TrialStatus.ERROR
        )

    def _is_broken(self, frame: FrameType, error: BaseException) -> bool:
        """Return whether a replacement function of a mutant is itself broken: an import, attribute or call in it fails.

        A missing attribute of None does not count, since a missing value may be the planted fault.
        """
        place, name = f"{_module(frame)}:{frame.f_code.co_qualname}.", f"{self.replacement}."
        if not place.startswith(name):
            return False
        if isinstance(error, ImportError):
            return error.name is not None  # None for a `raise ImportError(...)`, which is a planted fault
        if isinstance(error, TypeError):
            return _is_of_an_operation(error, frame)
        return isinstance(error, AttributeError) and error.obj is not None  # None also for a `raise`

    def _is_about_claim(self, error: AssertionError) -> bool:
        """Return whether an AssertionError is about the claim.

        It is if it was raised by the falsifier, its helpers, or an assertion library that they called.
        """
        frames = _frames(error)
        if not frames:
            return True
        project_places = [place for place, frame in enumerate(frames) if self._in_project(frame.f_code.co_filename)]
        last = frames[project_places[-1]] if project_places else None
        if last is not None and last.f_code.co_filename in self.subject_files:
            return False
        # The innermost frame is in the project but not in the subject, or in an assertion library.
        return last is frames[-1] or bool(set(_module(frames[-1]).split(".")) & set(ASSERTING))

    def frames(self, error: BaseException) -> list[str]:
        """Return the last three frames of the project, innermost last, each with its source line.

        If none of them is in the user's code, the first is replaced by the innermost frame in the user's code.
        """
        project_frames = [
            frame for frame in traceback.extract_tb(error.__traceback__) if self._in_project(frame.filename)
        ]
        users = [frame for frame in project_frames if is_users(frame.filename)]
        last = (
            project_frames[-3:] if not users or users[-1] in project_frames[-3:] else [users[-1], *project_frames[-2:]]
        )
        return [self._shown(frame) for frame in last]

    def _shown(self, frame: traceback.FrameSummary) -> str:
        return f"{self.relative_path(frame.filename)}:{frame.lineno} in {frame.name}: {frame.line}"

    def user_frame(self, error: BaseException) -> str:
        """Return the innermost frame outside of `pv` and of installed packages; "" if there is none."""
        frames = (frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename))
        return next((self._shown(frame) for frame in reversed([*frames])), "")

    def relative_path(self, filename: str) -> str:
        """Return the path for reports: relative to the project, for a file inside of it."""
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
    return bool(frames) and frames[-1].f_code.co_name == "_lazy_init" and _module(frames[-1]) in DEVICES


def _is_instance(error: BaseException, module: str, name: str) -> bool:
    """Return whether `error` is an instance of the class `name` of a module; False if the module is not imported."""
    kind = _class(module, name)
    return kind is not None and isinstance(error, kind)


def _class(module: str, name: str) -> type | None:
    kind = getattr(sys.modules.get(module), name, None)
    return kind if isinstance(kind, type) else None


def describe_error(error: BaseException) -> str:
    """Return the type and text of an error, or only the text of an error of `pv` or a skip, cut to 4000 characters."""
    text, kind = str(error).strip(), type(error)
    if text and (kind.__module__.split(".")[0] == "pv" or kind in [_class(*skip) for skip in SKIPS]):
        return text[:4000]
    return f"{kind.__name__}: {text}"[:4000] if text else kind.__name__


def _is_of_an_operation(error: BaseException, frame: FrameType) -> bool:
    """Return whether an operation in a frame raised the error, such as a call with wrong arguments, not a `raise`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame is not frame:
        return False
    # `tb_lasti` is the index of the instruction that raised: RAISE_VARARGS if it is a `raise` statement.
    return not dis.opname[frame.f_code.co_code[trace.tb_lasti]].startswith("RAISE")


def _frames(error: BaseException) -> list[FrameType]:
    """Return the frames of the traceback, the innermost last."""
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
