"""Exit codes and error messages of the command line; the distillation is replaced by one that raises a given error."""

import errno
import os
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reference_trainer import errors
from reference_trainer.interrupts import WRITTEN
from reference_trainer.training import trace
from tests.reference_trainer.commands import Ended, Failing, command, distilling, raising

quick = settings(max_examples=20, deadline=None)
OTHERS = ("SettingError", "StopRequestedError", "first_line", "missing_package")
FAILED = [
    *(getattr(errors, name) for name in errors.__all__ if name not in OTHERS),
    OSError,
    FileNotFoundError,
    MemoryError,
    torch.OutOfMemoryError,
]
BUGS = [
    ValueError,
    RuntimeError,
    KeyError,
    ZeroDivisionError,
    AssertionError,
    RecursionError,
    ModuleNotFoundError,
    TypeError,
]
TEXTS = st.text(st.sampled_from("ab:é' \n\r\t\x0b\u2028"), max_size=12)
NOTES = st.lists(st.sampled_from(["after 3 of 9 steps", "on_train_end raised too:\n  a\n  b", "(x)"]), max_size=3)
SAME_TEXT = "".join(WRITTEN)
REQUEST = "This is a bug in reference-trainer; please report it with the lines above."


def with_notes(error: BaseException, notes: list[str]) -> BaseException:
    for note in notes:
        error.add_note(note)
    return error


def words(*parts: str) -> str:
    return " ".join(" ".join(parts).split())


def in_brackets(notes: list[str]) -> list[str]:
    return [f"({note})" for note in notes]


@pytest.mark.parametrize("kind", [errors.SettingError, *FAILED])
@given(text=TEXTS, notes=NOTES)
@quick
def test_error_is_reported_in_one_line_with_its_notes(kind: Any, text: str, notes: list[str]) -> None:
    ended = distilling(raising(with_notes(kind(text), notes)))
    said = words("error:", text.strip() or kind.__name__, *in_brackets(notes))
    assert ended == Ended(2 if issubclass(kind, errors.SettingError) else 1, "", f"{said}\n")


@given(notes=NOTES)
@quick
def test_saved_run_says_how_to_go_on(notes: list[str]) -> None:
    ended = distilling(raising(with_notes(errors.StopRequestedError("stopped on request"), notes)))
    said = words("stopped on request", *in_brackets(notes))
    assert ended == Ended(75, "", f"{said}; a checkpoint was saved: go on with --resume latest\n")


@pytest.mark.parametrize("before", ["", "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: "])
@given(notes=NOTES)
@quick
def test_out_of_memory_on_the_cpu_is_a_failure(before: str, notes: list[str]) -> None:
    text = f"{before}can't allocate memory: you tried to allocate 16 bytes."
    ended = distilling(raising(with_notes(RuntimeError(text), notes)))
    assert ended == Ended(1, "", words("error:", text, *in_brackets(notes)) + "\n")


@pytest.mark.parametrize("package", ["torch", "safetensors", "numpy", "pydantic", "pydantic_settings"])
def test_missing_package_of_the_extra_is_named(package: str) -> None:
    ended = distilling(raising(ModuleNotFoundError(f"No module named {package!r}", name=package)))
    assert ended == Ended(1, "", f"error: {package} is not installed: pip install 'pv-contracts[trainer]'\n")


@pytest.mark.parametrize("kind", BUGS)
@given(text=st.text("abc :", max_size=12) | st.sampled_from(["memory", "can't allocate", "torch"]))
@quick
def test_internal_error_is_reported_with_its_traceback(kind: Any, text: str) -> None:
    ended = distilling(raising(kind(text)))
    lines, shown = ended.complaints.splitlines(), str(kind(text))
    assert (ended.code, ended.said) == (70, "")
    assert len(lines) > 3 and lines[0] == "Traceback (most recent call last):" and lines[-1] == REQUEST
    assert lines[-2].rstrip() == (f"{kind.__name__}: {shown}" if shown else kind.__name__).rstrip()
    assert "raise error" in ended.complaints


@pytest.mark.parametrize("kind", BUGS)
def test_error_of_a_callback_is_no_internal_error(kind: Any) -> None:
    """The note is recognised by its type. The user gets the traceback of the callback, and no request to report it."""
    note = errors.CallbackNote("raised by Mine.on_log")
    ended = distilling(raising(with_notes(kind("text"), [note])))
    assert (ended.code, ended.said) == (1, "")
    assert ended.complaints.startswith("Traceback (most recent call last):")
    assert ended.complaints.splitlines()[-1] == f"error: {kind('text')} (raised by Mine.on_log)"
    assert distilling(raising(with_notes(kind("text"), [str(note)]))).code == 70


@given(notes=st.lists(st.sampled_from([WRITTEN, SAME_TEXT, "after 3 of 9 steps", "a callback\nheard it"]), max_size=3))
@quick
def test_interrupt_reports_whether_a_model_was_written(notes: list[str]) -> None:
    """The note of the export is recognised by its type, not by its text."""
    ended = distilling(raising(with_notes(KeyboardInterrupt(), notes)))
    said = "interrupted" if any(note is WRITTEN for note in notes) else "interrupted; no model was written"
    assert ended == Ended(130, "", words("error:", said, *in_brackets(notes)) + "\n")


@pytest.mark.parametrize("at_flush", [False, True])
@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC, errno.EIO])
def test_closed_stderr_keeps_the_exit_code(number: int, at_flush: bool) -> None:
    def lost() -> Failing:
        return Failing(OSError(number, os.strerror(number)), at_flush=at_flush)

    ends = {errors.SettingError: 2, errors.DataError: 1, RuntimeError: 70, KeyboardInterrupt: 130}
    for kind, code in ends.items():
        assert distilling(raising(kind("x")), err=lost()).code == code, kind
    for wrong in (["distill", "--bogus"], ["bogus"], ["gradcheck", "--positions", "0"], []):
        assert command(*wrong, err=lost()).code == 2, wrong


@pytest.mark.parametrize(
    "arguments", [["schema"], ["--version"], ["--help"], ["-h"], ["distill", "--help"], ["gradcheck", "-h"]]
)
@pytest.mark.parametrize("at_flush", [False, True])
def test_failing_to_print_is_a_failure(arguments: list[str], at_flush: bool) -> None:
    says = "error: cannot write to standard output: {}\n".format
    for number in (errno.ENOSPC, errno.EIO, errno.EBADF):
        ended = command(*arguments, out=Failing(OSError(number, os.strerror(number)), at_flush=at_flush))
        assert (ended.code, ended.complaints) == (1, says(os.strerror(number)))
    closed = command(*arguments, closed=True)
    assert (closed.code, closed.complaints) == (1, says(os.strerror(errno.EBADF)))
    left = command(*arguments, out=Failing(BrokenPipeError(errno.EPIPE, "Broken pipe"), at_flush=at_flush))
    assert (left.code, left.complaints) == (1, "")


@pytest.mark.parametrize(
    "fault",
    [OSError("a library without its symbols"), FileNotFoundError(errno.ENOENT, "gone", "a file")],
    ids=["library", "file"],
)
def test_other_errors_are_raised_unchanged(fault: OSError) -> None:
    with mock.patch.object(trace, "schema", raising(fault)):
        assert command("schema").code is fault
