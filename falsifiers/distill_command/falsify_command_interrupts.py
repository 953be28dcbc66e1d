"""Attacks on the handling of interrupts by a command, with real signals.

The subject is the command line, `reference_trainer.cli`; where it is said, `reference_trainer.__main__`.
"""

from __future__ import annotations

import importlib
import io
import signal
import sys
from contextlib import redirect_stdout
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_command.cases import command, distilling, result
from falsifiers.support.signalled import AT_ONCE, DEFAULT, NUMBERS, begin, child, interrupt, started
from reference_trainer.errors import DataError


class Late(DataError):
    """A failure during whose report a signal arrives."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def __str__(self) -> str:
        interrupt(self.number)
        return "reported late"


@given(
    number=st.sampled_from(NUMBERS),
    when=st.sampled_from(["before the run", "in the run", "after it", "after it failed", "at the end"]),
    smoke=st.booleans(),
)
def falsify_command_changes_the_phase(subject: Any, number: int, when: str, smoke: bool) -> None:
    """An interrupt exits at once before the run, is raised during it, and is ignored after it."""

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
        sources = importlib.import_module("reference_trainer.config.sources")
        gather = sources.gather

        def gathered(*arguments: Any) -> Any:
            if when == "before the run":
                interrupt(number)
            return gather(*arguments)

        with mock.patch.object(sources, "gather", gathered):
            ended = distilling(subject, run, *(["--smoke", "2"] if smoke else []))
        if when == "at the end":
            interrupt(number)
        return f"{ended.code} {ended.complaints}"

    expected = {
        "before the run": (130, "", AT_ONCE),
        "in the run": (0, "130 error: interrupted; no model was written\n", b""),
        "after it failed": (0, "1 error: reported late\n", b""),
    }
    seen = child(started(act))
    assert seen == expected.get(when, (0, "0 ", b"")), f"{signal.Signals(number).name} {when}: {seen}"


@given(
    number=st.sampled_from(NUMBERS),
    arguments=st.sampled_from([["schema"], ["--help"], ["--nonsense"], ["distill", "--seed", "x"]]),
)
def falsify_interrupts_at_the_exit_are_ignored(subject: Any, number: int, arguments: list[str]) -> None:
    """After a command has ended, successfully or not, interrupts are ignored."""

    def act() -> str:
        code = command(subject, *arguments).code
        interrupt(number)
        return str(code)

    code = "0" if arguments in (["schema"], ["--help"]) else "2"
    seen = child(started(act))
    assert seen == (0, code, b""), f"{arguments}, then {signal.Signals(number).name}: {seen}; expected exit code {code}"


class AtImport:
    """Interrupts the import of the command line."""

    def find_spec(self, name: str, *others: Any) -> None:
        if name == "reference_trainer.cli":
            interrupt()


def falsify_process_sets_its_signals_first(subject: Any) -> None:
    """The process runs the command line under its own name, and an interrupt exits at once from the start.

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

    assert child(work) == (0, "0 Usage: reference-trainer schema [OPTIONS] [trace|settings]", b""), (
        f"`schema --help`: {child(work)}"
    )
    seen = child(interrupted)
    assert seen == (130, "", AT_ONCE), f"interrupted while it is loaded: {seen}; expected 130 and one line"
