"""Attacks on the exit codes of the command line and on its error messages.

The subject is `reference_trainer.cli`; the distillation is replaced by one that raises a given error.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_command.cases import Ended, Failing, command, distilling, raising, result
from falsifiers.support.signalled import child

ERRORS = importlib.import_module("reference_trainer.errors")
REFUSED = [ERRORS.SettingError]
FAILED = [
    *(getattr(ERRORS, name) for name in ERRORS.__all__ if name not in ("SettingError", "missing_package")),
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
SPACES = " \n\r\t\x0b\u2028"
TEXTS = st.text(st.sampled_from("ab:é'" + SPACES), max_size=12)
NOTES = st.lists(st.sampled_from(["after 3 of 9 steps", "on_train_end raised too:\n  a\n  b", "(x)"]), max_size=3)
WRITTEN = importlib.import_module("reference_trainer.interrupts").WRITTEN
SAME_TEXT = "".join(WRITTEN)
REQUEST = "This is a bug in reference-trainer; please report it with the lines above."


def _with_notes(error: BaseException, notes: list[str]) -> BaseException:
    for note in notes:
        error.add_note(note)
    return error


def _words(text: str) -> str:
    return " ".join(text.split())


def _assert_ended(case: str, ended: Ended, code: int, complaints: str) -> None:
    assert ended.code == code, f"{case}: exit code {ended.code}; expected {code}; it says {ended.complaints!r}"
    assert ended.complaints == complaints, f"{case}: standard error is {ended.complaints!r}; expected {complaints!r}"
    assert ended.said == "", f"{case}: standard output is {ended.said!r}; expected nothing"


@given(kind=st.sampled_from(REFUSED + FAILED), text=TEXTS, notes=NOTES)
def falsify_errors_are_reported_in_one_line(subject: Any, kind: Any, text: str, notes: list[str]) -> None:
    """Exit code 2 for a setting, 1 for other failures; message and notes in one line, or else the error's type."""
    ended = distilling(subject, raising(_with_notes(kind(text), notes)))
    said = _words(f"{text.strip() or kind.__name__} {' '.join(f'({note})' for note in notes)}")
    _assert_ended(f"{kind.__name__}({text!r}), {notes}", ended, 2 if kind in REFUSED else 1, f"error: {said}\n")


@given(where=st.sampled_from(["at the start", "inside"]), notes=NOTES)
def falsify_out_of_memory_is_a_failure(subject: Any, where: str, notes: list[str]) -> None:
    """On the CPU, torch reports a lack of memory by a bare RuntimeError, which only its text tells apart."""
    text = "can't allocate memory: you tried to allocate 16 bytes."
    text = text if where == "at the start" else f"[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: {text}"
    ended = distilling(subject, raising(_with_notes(RuntimeError(text), notes)))
    said = _words(f"{text} {' '.join(f'({note})' for note in notes)}")
    _assert_ended(f"a RuntimeError of {text!r}", ended, 1, f"error: {said}\n")


@given(module=st.sampled_from(["torch", "safetensors", "numpy", "pydantic", "pydantic_settings"]))
def falsify_missing_packages_are_named(subject: Any, module: str) -> None:
    """Without the extra `trainer`, the command exists; a missing package is reported with the way to install it."""
    missing = ModuleNotFoundError(f"No module named {module!r}", name=module)
    ended = distilling(subject, raising(missing))
    said = f"error: {module} is not installed: pip install 'pv-contracts[trainer]'\n"
    _assert_ended(f"without {module}", ended, 1, said)


def falsify_entry_point_names_missing_packages(subject: Any) -> None:
    """A missing package that the command line imports is reported in the same way; other import errors are raised.

    The subject is `reference_trainer.__main__`.
    """

    def without(package: str) -> Callable[[], str]:
        def work() -> str:
            ours = [name for name in sys.modules if name.startswith(("reference_trainer.cli", "reference_trainer.con"))]
            for name in ours:
                del sys.modules[name]
            sys.modules[package] = None  # type: ignore[assignment]  # as Python marks a module that must not be found
            try:
                subject.run()
            except SystemExit as error:
                return str(error.code)
            return "it went on"

        return work

    for package in ("pydantic", "click"):
        code, answer, complaints = child(without(package))
        missing = f"error: {package} is not installed: pip install 'pv-contracts[trainer]'"
        expected = missing if package == "pydantic" else "ModuleNotFoundError: "
        case = f"without {package}: {code}, {complaints!r}"
        assert answer.startswith(expected), f"{case}: the answer is {answer!r}; expected {expected!r}"


@given(
    kind=st.sampled_from(BUGS),
    text=st.text("abc :", max_size=12) | st.sampled_from(["memory", "can't allocate", "torch"]),
)
def falsify_internal_errors_have_a_traceback(subject: Any, kind: Any, text: str) -> None:
    """Exit code 70, the full traceback, and a request to report it."""
    ended = distilling(subject, raising(kind(text)))
    lines = ended.complaints.splitlines()
    case = f"a {kind.__name__} of {text!r} gives {ended.complaints!r}"
    assert ended.code == 70 and ended.said == "", f"{case}, exit code {ended.code}, {ended.said!r}; expected 70"
    assert len(lines) > 3 and lines[0] == "Traceback (most recent call last):" and lines[-1] == REQUEST, case
    shown = str(kind(text))
    assert lines[-2].rstrip() == (f"{kind.__name__}: {shown}" if shown else kind.__name__).rstrip(), case
    assert sum("in _distil" in line for line in lines) == 1 and "raise error" in ended.complaints, case


@given(notes=st.lists(st.sampled_from([WRITTEN, SAME_TEXT, "after 3 of 9 steps", "a callback\nheard it"]), max_size=3))
def falsify_interrupt_reports_whether_a_model_was_written(subject: Any, notes: list[str]) -> None:
    """Exit code 130, whether a model was written, and the notes of the interrupt."""
    ended = distilling(subject, raising(_with_notes(KeyboardInterrupt(), notes)))
    said = "interrupted" if any(note is WRITTEN for note in notes) else "interrupted; no model was written"
    line = _words(f"error: {said} {' '.join(f'({note})' for note in notes)}")
    _assert_ended(f"an interrupt with the notes {notes}", ended, 130, f"{line}\n")


DEAF = st.sampled_from([errno.EPIPE, errno.ENOSPC, errno.EIO])


@given(
    end=st.sampled_from(
        [(ERRORS.SettingError, 2), (ERRORS.DataError, 1), (RuntimeError, 70), (KeyboardInterrupt, 130)]
    ),
    number=DEAF,
    at_flush=st.booleans(),
)
def falsify_closed_stderr_keeps_the_exit_code(subject: Any, end: tuple[Any, int], number: int, at_flush: bool) -> None:
    """A standard error that cannot be written does not change the exit code."""
    kind, code = end
    lost = Failing(OSError(number, os.strerror(number)), at_flush=at_flush)
    ended = distilling(subject, raising(kind("x")), err=lost)
    assert ended.code == code, f"{kind.__name__}, with a lost stderr: exit code {ended.code!r}; expected {code}"
    for wrong in (["distill", "--bogus"], ["bogus"], ["gradcheck", "--positions", "0"], []):
        ended = command(subject, *wrong, err=Failing(OSError(number, os.strerror(number)), at_flush=at_flush))
        assert ended.code == 2, f"{wrong}, with a lost stderr: exit code {ended.code!r}; expected 2"


PRINTING = st.sampled_from([["schema"], ["--version"], ["--help"], ["-h"], ["distill", "--help"], ["gradcheck", "-h"]])


@given(arguments=PRINTING, number=st.sampled_from([errno.ENOSPC, errno.EIO, errno.EBADF]), at_flush=st.booleans())
def falsify_failing_to_print_is_a_failure(subject: Any, arguments: list[str], number: int, at_flush: bool) -> None:
    """Exit code 1 and one line with the cause; a closed pipe is exit code 1 without a message."""
    full = Failing(OSError(number, os.strerror(number)), at_flush=at_flush)
    ended = command(subject, *arguments, out=full)
    said = f"error: cannot write to standard output: {os.strerror(number)}\n"
    assert (ended.code, ended.complaints) == (1, said), (
        f"{arguments} into a full disk: {ended}; expected 1 and {said!r}"
    )
    closed, bad = command(subject, *arguments, closed=True), os.strerror(errno.EBADF)
    said = f"error: cannot write to standard output: {bad}\n"
    assert (closed.code, closed.complaints) == (1, said), f"{arguments} with no standard output: {closed}"
    left = command(subject, *arguments, out=Failing(BrokenPipeError(errno.EPIPE, "Broken pipe"), at_flush=at_flush))
    assert (left.code, left.complaints) == (1, ""), f"{arguments} into a closed pipe: {left}; expected 1 and no word"


@given(
    fault=st.sampled_from([OSError("a library without its symbols"), FileNotFoundError(errno.ENOENT, "gone", "a file")])
)
def falsify_other_errors_are_raised_unchanged(subject: Any, fault: OSError) -> None:
    """A missing file, or a library that cannot be loaded, is raised unchanged."""
    with mock.patch.object(importlib.import_module("reference_trainer.training.trace"), "schema", raising(fault)):
        ended = command(subject, "schema")
    assert ended.code is fault, f"`schema` met {fault!r}; it ends with {ended}"


@given(go=st.booleans(), smoke=st.booleans())
def falsify_verdict_is_the_exit_code_of_a_smoke_run(subject: Any, go: bool, smoke: bool) -> None:
    """A smoke run exits with 0 or 1 and prints no result line; any other finished run exits with 0 and prints it."""
    ended = distilling(subject, lambda settings, *, lines: result(go=go), *(["--smoke", "3"] if smoke else []))
    expected = 1 if smoke and not go else 0
    assert ended.code == expected, f"smoke: {smoke}, go: {go}: exit code {ended.code}; expected {expected}"
    assert (ended.said == "") is smoke and ended.complaints == "", f"smoke: {smoke}: {ended}"
