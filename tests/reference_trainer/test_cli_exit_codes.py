"""Exit codes, error messages and output of the command line; the distillation is replaced by another function."""

import errno
import math
import os
from typing import Any
from unittest import mock

import pytest
import torch

import reference_trainer
from reference_trainer import errors
from reference_trainer.config import settings as config
from reference_trainer.config.kinds import kind_of
from reference_trainer.distillation import gradcheck
from reference_trainer.interrupts import WRITTEN
from tests.reference_trainer.commands import Ended, Failing, command, distilling, raising, result

REQUEST = "This is a bug in reference-trainer; please report it with the lines above."
NO_MEMORY = "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."
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
    assert (ended.code, ended.output, lines[0], lines[-1]) == (70, "", "Traceback (most recent call last):", REQUEST)
    assert f"{kind.__name__}: {kind('text')}" in ended.complaints
    ended = distilling(raising(noted(kind("text"), errors.CallbackNote("raised by Mine.on_log"))))
    lines = ended.complaints.splitlines()
    assert (ended.code, ended.output, lines[0]) == (1, "", "Traceback (most recent call last):")
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


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("number", [5, 28, 32])
def test_run_succeeds_without_standard_output(number: int, closed: bool) -> None:
    lost = Failing(OSError(number, "lost"))
    ended = distilling(lambda settings, *, lines: result(), out=lost, closed=closed)
    (line,) = ended.complaints.splitlines()
    assert ended.code == 0 and line.startswith("standard output failed (")


def test_version_is_printed_and_help_lists_every_setting_with_its_default_in_the_order_of_declaration() -> None:
    assert command("--version") == Ended(0, f"reference-trainer, version {reference_trainer.__version__}\n", "")
    shown, places = " ".join(command("distill", "--help").output.split()), []
    for name, field in config.FIELDS.items():
        default = "" if field.default in (None, False) else f" [default: {field.default}]"
        dotted = config.DOTTED[name].replace("_", "-")
        other = "" if dotted.endswith(f".{name.replace('_', '-')}") else f", --{dotted}"
        flag = f" --{name.replace('_', '-')}{other} {kind_of(field).metavar}".rstrip()
        assert flag in shown and " ".join(f"{field.description}{default}".split()) in shown, name
        places.append(shown.index(flag))
    assert places == sorted(places)


@pytest.mark.parametrize("launcher", [("launch", "--nproc-per-node", "1"), ("until",)])
def test_help_of_a_command_after_a_launcher_is_printed(launcher: tuple[str, ...]) -> None:
    ended = command(*launcher, "--", "distill", "--help")
    assert (ended.code, ended.complaints) == (0, "")
    assert "Distil a teacher into a smaller student." in ended.output


@pytest.mark.parametrize("wrong", [math.nextafter(gradcheck.AGREE, 1), math.inf, math.nan])
def test_one_difference_beyond_rounding_is_a_failure_also_if_it_cannot_be_printed(wrong: float) -> None:
    pairs = [(0.25, 0.0), (1.0, 1e-16), (2.0, gradcheck.AGREE), (4.0, 0.0), (20.0, wrong)]
    with mock.patch.object(gradcheck, "differences", lambda *arguments: pairs):
        ended = command("gradcheck")
        lost = command("gradcheck", out=Failing(OSError(28, "No space left on device")))
    assert (ended.code, lost.code) == (1, 1)
    assert "DIFFER on" in ended.output


@pytest.mark.parametrize("flags", ["--vocabulary=1", "--positions=0", "--seed=-1", "--device=cuda:999"])
def test_unusable_size_or_device_is_refused(flags: str) -> None:
    assert command("gradcheck", flags).code == 2
