"""Attacks on what an interrupt does at which time, with real signals in a child process.

The subject is `reference_trainer.interrupts`; where it is said, the command line or the module that starts it.
"""

from __future__ import annotations

import importlib
import io
import itertools
import os
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.command_cases import command, distilling, result

NUMBERS = (signal.SIGINT, signal.SIGTERM)
DEFAULT, IGNORED, FOREIGN = "as Python sets it", "ignored from the start", "another program's"
PHASES = ("leave_at_once", "clean_up_first", "ignore")
ORDERS = [order for count in range(4) for order in itertools.permutations(PHASES, count)]
SAID = b"error: interrupted\n"


def _child(work: Callable[[], str], *, deaf: bool = False) -> tuple[int | str, str, bytes]:
    """How a fork of this process ended (its exit code, or the signal's name), what `work` says, and standard error."""
    (reading, writing), (hearing, telling) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        for each in (reading, hearing):
            os.close(each)
        _answer(work, writing, telling, deaf)
    for each in (writing, telling):
        os.close(each)
    with os.fdopen(reading, encoding="utf-8") as said, os.fdopen(hearing, "rb") as complaints:
        answer, heard = said.read(), complaints.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return signal.Signals(-status).name if status < 0 else status, answer, heard


def _answer(work: Callable[[], str], writing: int, telling: int, deaf: bool) -> None:
    try:
        os.dup2(telling, 2)
        os.close(telling)
        if deaf:
            os.close(2)
        answer = work()
    except BaseException as error:  # the child has nobody else to tell
        answer = f"{type(error).__name__}: {error}"
    os.write(writing, answer.encode())
    os._exit(0)


def _begin(number: int, before: str) -> list[int]:
    """Sets the signal to what it is at the start; the list that another program's handler fills."""
    heard: list[int] = []
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    handlers = {
        DEFAULT: usual[signal.Signals(number)],
        IGNORED: signal.SIG_IGN,
        FOREIGN: lambda *_: heard.append(number),
    }
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, usual[each])
    signal.signal(number, handlers[before])
    return heard


def _sent(number: int, heard: list[int]) -> str:
    try:
        os.kill(os.getpid(), number)
    except KeyboardInterrupt:
        return "interrupt"
    return "heard" if heard else "nothing"


def falsify_each_phase_has_its_interrupt(subject: Any) -> None:
    """At once, then as an exception, then too late; a signal that was ignored or somebody else's stays so."""
    for number, before, phases in itertools.product(NUMBERS, (DEFAULT, IGNORED, FOREIGN), ORDERS):
        _assert_expected(subject, number, before, phases)
    for number in NUMBERS:
        _assert_expected(subject, number, DEFAULT, ("leave_at_once",), deaf=True)


def _assert_expected(subject: Any, number: int, before: str, phases: tuple[str, ...], deaf: bool = False) -> None:
    def work() -> str:
        heard = _begin(number, before)
        for phase in phases:
            getattr(subject, phase)()
        return _sent(number, heard)

    code, answer, complaints = _expected(number, before, phases)
    ended = _child(work, deaf=deaf)
    case = f"{signal.Signals(number).name}, {before}, after {phases}" + (", with standard error closed" if deaf else "")
    expected = (code, answer, b"" if deaf else complaints)
    assert ended == expected, f"{case}: exit code, answer and standard error are {ended}; expected {expected}"


def _expected(number: int, before: str, phases: tuple[str, ...]) -> tuple[int | str, str, bytes]:
    if before == IGNORED:
        return 0, "nothing", b""
    if before == FOREIGN:
        return 0, "heard", b""
    state = "usual"
    for phase in phases:
        follows = {"leave_at_once": {"usual": "leave"}, "clean_up_first": {"leave": "once"}}
        follows["ignore"] = {"leave": "deaf", "once": "deaf"}
        state = follows[phase].get(state, state)
    usual = (0, "interrupt", b"") if number == signal.SIGINT else ("SIGTERM", "", b"")
    return {"usual": usual, "leave": (130, "", SAID), "once": (0, "interrupt", b""), "deaf": (0, "nothing", b"")}[state]


@given(waits=st.lists(st.floats(0, 5) | st.sampled_from([2.99, 3.0, 3.01]), min_size=1, max_size=5), numbers=st.data())
def falsify_interrupts_in_a_row_are_one(subject: Any, waits: list[float], numbers: Any) -> None:
    """Those that follow within 3 s of one that was raised are the same one; a later one is raised again."""
    sent = [numbers.draw(st.sampled_from(NUMBERS)) for _ in waits]
    at, expected, last = 1000.0, list[str](), -1000.0
    for wait in waits:
        at += wait
        expected.append("interrupt" if at - last > 3 else "nothing")
        last = at if expected[-1] == "interrupt" else last

    def work() -> str:
        _begin(signal.SIGINT, DEFAULT)
        subject.leave_at_once()
        subject.clean_up_first()
        clock, seen = 1000.0, list[str]()
        for wait, number in zip(waits, sent, strict=True):
            clock += wait
            with mock.patch.object(subject.time, "monotonic", lambda now=clock: now):
                seen.append(_sent(number, []))
        return " ".join(seen)

    ended = _child(work)
    assert ended == (0, " ".join(expected), b""), f"after waits of {waits} s: {ended}; expected {expected}"


def _started(act: Callable[[], Any]) -> Callable[[], str]:
    """`act` in a process in which an interrupt leaves at once, and what it answers."""

    def work() -> str:
        _begin(signal.SIGINT, DEFAULT)
        importlib.import_module("reference_trainer.interrupts").leave_at_once()
        return str(act())

    return work


def _interrupt(*numbers: int) -> None:
    for number in numbers or (signal.SIGINT,):
        os.kill(os.getpid(), number)


@given(
    number=st.sampled_from(NUMBERS),
    when=st.sampled_from(["before the run", "in the run", "after it", "at the end"]),
    smoke=st.booleans(),
)
def falsify_an_interrupt_of_the_command(subject: Any, number: int, when: str, smoke: bool) -> None:
    """Before the run nothing is to be cleaned up; in it the run hears of it; after it, it is too late.

    The subject is the command line.
    """

    def run(settings: Any, *, lines: Any) -> Any:
        if when == "in the run":
            _interrupt(number, number)
        written = lines.write

        def write(line: str) -> None:
            _interrupt(number)
            written(line)

        lines.write = write if when == "after it" else written
        return result()

    def act() -> str:
        gather = subject.gather

        def gathered(*arguments: Any) -> Any:
            if when == "before the run":
                _interrupt(number)
            return gather(*arguments)

        with mock.patch.object(subject, "gather", gathered):
            ended = distilling(subject, run, *(["--smoke", "2"] if smoke else []))
        if when == "at the end":
            _interrupt(number)
        return f"{ended.code} {ended.complaints}"

    expected = {
        "before the run": (130, "", SAID),
        "in the run": (0, "130 error: interrupted; no model was written\n", b""),
    }
    seen = _child(_started(act))
    assert seen == expected.get(when, (0, "0 ", b"")), f"{signal.Signals(number).name} {when}: {seen}"


@given(
    number=st.sampled_from(NUMBERS),
    arguments=st.sampled_from([["schema"], ["--help"], ["--nonsense"], ["distill", "--seed", "x"]]),
)
def falsify_an_interrupt_at_the_exit_is_too_late(subject: Any, number: int, arguments: list[str]) -> None:
    """Once a command has ended, well or not, nothing interrupts the exit. The subject is the command line."""

    def act() -> str:
        code = command(subject, *arguments).code
        _interrupt(number)
        return str(code)

    code = "0" if arguments in (["schema"], ["--help"]) else "2"
    seen = _child(_started(act))
    assert seen == (0, code, b""), f"{arguments}, then {signal.Signals(number).name}: {seen}; expected exit code {code}"


def falsify_the_process_begins_with_its_signals(subject: Any) -> None:
    """The command line is what its process runs, under its name, and an interrupt leaves at once from the beginning.

    The subject is `reference_trainer.__main__`.
    """
    cli = importlib.import_module("reference_trainer.cli")

    def work() -> str:
        _begin(signal.SIGINT, DEFAULT)
        said = io.StringIO()
        with mock.patch.object(sys, "argv", ["x.py", "schema", "--help"]), redirect_stdout(said):
            try:
                subject.run()
            except SystemExit as error:
                return f"{error.code} {said.getvalue().splitlines()[0]}"
        return "it went on"

    def interrupted() -> str:
        _begin(signal.SIGINT, DEFAULT)
        with mock.patch.object(cli, "main", lambda *_, **named: _interrupt()), redirect_stderr(io.StringIO()):
            subject.run()
        return "it went on"

    assert _child(work) == (0, "0 Usage: reference-trainer schema [OPTIONS]", b""), f"`schema --help`: {_child(work)}"
    seen = _child(interrupted)
    assert seen == (130, "", SAID), f"interrupted before anything was done: {seen}; expected 130 and one line"
