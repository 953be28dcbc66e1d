"""Exit codes and error messages of the command line; the distillation is replaced by one that raises a given error."""

import errno
import os
from typing import Any

import pytest
import torch

from reference_trainer import errors
from reference_trainer.interrupts import WRITTEN
from tests.reference_trainer.commands import Ended, Failing, command, distilling, raising

REQUEST = "This is a bug in reference-trainer; please report it with the lines above."
NO_MEMORY = (
    "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried to allocate 16 bytes."
)
INSTALL = "pip install 'pv-contracts[trainer]'"
RESUME = "a checkpoint was saved: go on with --resume latest"


def noted(error: BaseException, *notes: str) -> BaseException:
    for note in notes:
        error.add_note(note)
    return error


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (errors.SettingError("a\n\n b"), 2, "error: a b"),
        (errors.DataError(""), 1, "error: DataError"),
        (noted(errors.OutputError("no space"), "after 3 steps", "x\n y"), 1, "error: no space (after 3 steps) (x y)"),
        (FileNotFoundError("gone"), 1, "error: gone"),
        (MemoryError("too much"), 1, "error: too much"),
        (torch.OutOfMemoryError("too much"), 1, "error: too much"),
        (RuntimeError(NO_MEMORY), 1, f"error: {NO_MEMORY}"),
        (ModuleNotFoundError("", name="numpy"), 1, f"error: numpy is not installed: {INSTALL}"),
        (noted(errors.StopRequestedError("stopped"), "after 3 steps"), 75, f"stopped (after 3 steps); {RESUME}"),
        (KeyboardInterrupt(), 130, "error: interrupted; no model was written"),
        (noted(KeyboardInterrupt(), WRITTEN), 130, f"error: interrupted ({WRITTEN})"),
        (noted(KeyboardInterrupt(), "".join(WRITTEN)), 130, f"error: interrupted; no model was written ({WRITTEN})"),
    ],
)  # fmt: skip
def test_error_is_reported_in_one_line_with_its_notes(error: BaseException, code: int, says: str) -> None:
    assert distilling(raising(error)) == Ended(code, "", f"{' '.join(says.split())}\n")


@pytest.mark.parametrize("kind", [ValueError, KeyError, AssertionError, ModuleNotFoundError])
def test_internal_error_is_reported_with_its_traceback_and_one_of_a_callback_is_none(kind: Any) -> None:
    """The note is recognised by its type. The user gets the traceback of the callback, and no request to report it."""
    ended = distilling(raising(noted(kind("text"), "raised by Mine.on_log")))
    lines = ended.complaints.splitlines()
    assert (ended.code, ended.said, lines[0], lines[-1]) == (70, "", "Traceback (most recent call last):", REQUEST)
    assert f"{kind.__name__}: {kind('text')}" in ended.complaints
    ended = distilling(raising(noted(kind("text"), errors.CallbackNote("raised by Mine.on_log"))))
    lines = ended.complaints.splitlines()
    assert (ended.code, ended.said, lines[0]) == (1, "", "Traceback (most recent call last):")
    assert lines[-1] == f"error: {kind('text')} (raised by Mine.on_log)"


@pytest.mark.parametrize("at_flush", [False, True])
def test_closed_stderr_keeps_the_exit_code(at_flush: bool) -> None:
    ends = {errors.SettingError: 2, errors.DataError: 1, RuntimeError: 70, KeyboardInterrupt: 130}
    for kind, code in ends.items():
        lost = Failing(OSError(errno.EPIPE, "Broken pipe"), at_flush=at_flush)
        assert distilling(raising(kind("x")), err=lost).code == code, kind
    for wrong in (["distill", "--bogus"], ["bogus"], ["gradcheck", "--positions", "0"], []):
        assert command(*wrong, err=Failing(OSError(errno.EIO, "lost"), at_flush=at_flush)).code == 2, wrong


@pytest.mark.parametrize("arguments", [["schema"], ["--version"], ["distill", "--help"]])
@pytest.mark.parametrize("at_flush", [False, True])
def test_failing_to_print_is_a_failure(arguments: list[str], at_flush: bool) -> None:
    says = "error: cannot write to standard output: {}\n".format
    ended = command(*arguments, out=Failing(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), at_flush=at_flush))
    assert (ended.code, ended.complaints) == (1, says(os.strerror(errno.ENOSPC)))
    closed = command(*arguments, closed=True)
    assert (closed.code, closed.complaints) == (1, says(os.strerror(errno.EBADF)))
    left = command(*arguments, out=Failing(BrokenPipeError(errno.EPIPE, "Broken pipe"), at_flush=at_flush))
    assert (left.code, left.complaints) == (1, "")
