"""Attacks on what an interrupt does to a command, with real signals.

The subject is the command line, `reference_trainer.cli`; where it is said, `reference_trainer.__main__`.
"""

from __future__ import annotations

import io
import signal
import sys
from contextlib import redirect_stdout
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.command_cases import command, distilling, result
from falsifiers.signalled import AT_ONCE, DEFAULT, NUMBERS, begin, child, interrupt, started
from reference_trainer.errors import DataError


class Late(DataError):
    """A failure during whose telling a signal comes."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def __str__(self) -> str:
        interrupt(self.number)
        return "told late"


@given(
    number=st.sampled_from(NUMBERS),
    when=st.sampled_from(["before the run", "in the run", "after it", "after it failed", "at the end"]),
    smoke=st.booleans(),
)
def falsify_an_interrupt_of_the_command(subject: Any, number: int, when: str, smoke: bool) -> None:
    """Before the run nothing is to be cleaned up; in it the run hears of it; after it, it is too late."""

    def run(settings: Any, *, lines: Any) -> Any:
        if when == "in the run":
            interrupt(number, number)
        if when == "after it failed":
            raise Late(number)
        written = lines.write

        def write(line: str) -> None:
            interrupt(number)
            written(line)

        lines.write = write if when == "after it" else written
        return result()

    def act() -> str:
        gather = subject.gather

        def gathered(*arguments: Any) -> Any:
            if when == "before the run":
                interrupt(number)
            return gather(*arguments)

        with mock.patch.object(subject, "gather", gathered):
            ended = distilling(subject, run, *(["--smoke", "2"] if smoke else []))
        if when == "at the end":
            interrupt(number)
        return f"{ended.code} {ended.complaints}"

    expected = {
        "before the run": (130, "", AT_ONCE),
        "in the run": (0, "130 error: interrupted; no model was written\n", b""),
        "after it failed": (0, "1 error: told late\n", b""),
    }
    seen = child(started(act))
    assert seen == expected.get(when, (0, "0 ", b"")), f"{signal.Signals(number).name} {when}: {seen}"


@given(
    number=st.sampled_from(NUMBERS),
    arguments=st.sampled_from([["schema"], ["--help"], ["--nonsense"], ["distill", "--seed", "x"]]),
)
def falsify_an_interrupt_at_the_exit_is_too_late(subject: Any, number: int, arguments: list[str]) -> None:
    """Once a command has ended, well or not, nothing interrupts the exit."""

    def act() -> str:
        code = command(subject, *arguments).code
        interrupt(number)
        return str(code)

    code = "0" if arguments in (["schema"], ["--help"]) else "2"
    seen = child(started(act))
    assert seen == (0, code, b""), f"{arguments}, then {signal.Signals(number).name}: {seen}; expected exit code {code}"


class AtImport:
    """Interrupts when the command line is about to be loaded."""

    def find_spec(self, name: str, *others: Any) -> None:
        if name == "reference_trainer.cli":
            interrupt()


def falsify_the_process_begins_with_its_signals(subject: Any) -> None:
    """The command line is what its process runs, under its name, and an interrupt leaves at once from the beginning.

    The subject is `reference_trainer.__main__`.
    """

    def work() -> str:
        begin(signal.SIGINT, DEFAULT)
        said = io.StringIO()
        with mock.patch.object(sys, "argv", ["x.py", "schema", "--help"]), redirect_stdout(said):
            try:
                subject.run()
            except SystemExit as error:
                return f"{error.code} {said.getvalue().splitlines()[0]}"
        return "it went on"

    def interrupted() -> str:
        begin(signal.SIGINT, DEFAULT)
        sys.modules.pop("reference_trainer.cli", None)
        sys.meta_path.insert(0, AtImport())
        subject.run()
        return "it went on"

    assert child(work) == (0, "0 Usage: reference-trainer schema [OPTIONS]", b""), f"`schema --help`: {child(work)}"
    seen = child(interrupted)
    assert seen == (130, "", AT_ONCE), f"interrupted while it is loaded: {seen}; expected 130 and one line"
