"""Interrupts of a command, with real signals."""

import signal
import sys
from typing import Any
from unittest import mock

import pytest

from reference_trainer.__main__ import run
from reference_trainer.config import sources
from reference_trainer.errors import DataError
from tests.reference_trainer.commands import command, distilling, result
from tests.reference_trainer.signalled import AT_ONCE, DEFAULT, NUMBERS, begin, child, interrupt, started


class Late(DataError):
    """A failure during whose report a signal arrives."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def __str__(self) -> str:
        interrupt(self.number)
        return "reported late"


ENDS = {
    "before the run": (130, "", AT_ONCE),
    "in the run": (0, "130 error: interrupted; no model was written\n", b""),
    "after it": (0, "0 ", b""),
    "after it failed": (0, "1 error: reported late\n", b""),
    "at the end": (0, "0 ", b""),
}


def run_interrupted(when: str, number: int) -> Any:
    """Return a distillation that is interrupted at this moment, once or twice."""

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

    return run


@pytest.mark.parametrize("when", ENDS)
@pytest.mark.parametrize("number", NUMBERS)
def test_interrupt_exits_at_once_before_the_run_raises_in_it_and_is_ignored_after_it(number: int, when: str) -> None:
    gather = sources.gather

    def gathered(*arguments: Any) -> Any:
        if when == "before the run":
            interrupt(number)
        return gather(*arguments)

    def act() -> str:
        with mock.patch.object(sources, "gather", gathered):
            ended = distilling(run_interrupted(when, number))
        if when == "at the end":
            interrupt(number)
        return f"{ended.code} {ended.complaints}"

    assert child(started(act)) == ENDS[when]


@pytest.mark.parametrize("number", NUMBERS)
def test_interrupt_at_the_exit_is_ignored(number: int) -> None:
    def act() -> str:
        ended = command("schema")
        interrupt(number)
        return str(ended.code)

    assert child(started(act)) == (0, "0", b""), signal.Signals(number).name


class AtImport:
    """Interrupts the import of the command line."""

    def find_spec(self, name: str, *others: Any) -> None:
        if name == "reference_trainer.cli":
            interrupt()


def test_process_sets_its_signal_handlers_before_the_import() -> None:
    def work() -> str:
        begin(signal.SIGINT, DEFAULT)
        sys.modules.pop("reference_trainer.cli", None)
        sys.meta_path.insert(0, AtImport())
        run()
        return "it went on"

    assert child(work) == (130, "", AT_ONCE)
