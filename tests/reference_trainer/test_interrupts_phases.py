"""The phases of interrupt handling, and interrupts of a command, with real signals to child processes."""

import importlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from tempfile import TemporaryFile
from typing import Any
from unittest import mock

import pytest

from reference_trainer import interrupts
from reference_trainer.__main__ import run
from reference_trainer.cli import distillation
from reference_trainer.errors import DataError
from tests.reference_trainer.commands import command, distilling, result
from tests.reference_trainer.forked import in_child

WARNINGS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, *WARNINGS)
DEFAULT, IGNORED, FOREIGN = "as Python sets it", "ignored from the start", "another program's"
AT_ONCE = b"error: interrupted\n"


def child(work: Callable[[], str]) -> tuple[int | str, str, bytes]:
    """Run `work` in a fork; return its exit code or signal name, the result of `work`, and standard error."""

    def answered() -> None:
        os.dup2(complaints.fileno(), 2)
        try:
            answer = work()
        except BaseException as error:  # the child reports every exception to its parent
            answer = f"{type(error).__name__}: {error}"
        os.write(output.fileno(), answer.encode())

    with TemporaryFile("w+") as output, TemporaryFile() as complaints:
        code = in_child(answered)
        output.seek(0)
        complaints.seek(0)
        return signal.Signals(-code).name if code < 0 else code, output.read(), complaints.read()


def begin(number: int, before: str) -> list[int]:
    """Set the signal's initial handler; return the list to which a foreign handler appends."""
    heard: list[int] = []
    for signal_number in NUMBERS:
        signal.signal(signal_number, signal.default_int_handler if signal_number == signal.SIGINT else signal.SIG_DFL)
    if before != DEFAULT:
        signal.signal(number, signal.SIG_IGN if before == IGNORED else lambda *_: heard.append(number))
    return heard


def sent(number: int, heard: list[int]) -> str:
    """Send the signal to this process; return "interrupt", "heard" or "nothing"."""
    try:
        os.kill(os.getpid(), number)
    except KeyboardInterrupt:
        return "interrupt"
    return "heard" if heard else "nothing"


def started(act: Callable[[], Any]) -> Callable[[], str]:
    """Return `act` as work for a process that an interrupt ends immediately."""

    def work() -> str:
        begin(signal.SIGINT, DEFAULT)
        importlib.import_module("reference_trainer.interrupts").exit_at_once()
        return str(act())

    return work


def interrupt(*numbers: int) -> None:
    """Send these signals, by default SIGINT, to this process."""
    for number in numbers or (signal.SIGINT,):
        os.kill(os.getpid(), number)


PHASES = ("exit_at_once", "raise_once", "ignore")
ORDERS = [order for count in range(4) for order in itertools.permutations(PHASES, count)]


def ended(number: int, before: str, phases: tuple[str, ...]) -> tuple[int | str, str, bytes]:
    """Return how a child ended that received a signal after these phases."""

    def work() -> str:
        heard = begin(number, before)
        for phase in phases:
            getattr(interrupts, phase)()
        return sent(number, heard)

    return child(work)


def expected(number: int, phases: tuple[str, ...]) -> tuple[int | str, str, bytes]:
    follows = {"exit_at_once": {"usual": "leave"}, "raise_once": {"leave": "once"}}
    follows["ignore"] = {"leave": "ignored", "once": "ignored"}
    state = "usual"
    for phase in phases:
        state = follows[phase].get(state, state)
    ends: dict[str, tuple[int | str, str, bytes]] = {
        "usual": (0, "interrupt", b"") if number == signal.SIGINT else (signal.Signals(number).name, "", b""),
        "leave": (130, "", AT_ONCE),
        "once": (0, "interrupt", b""),
        "ignored": (0, "nothing", b""),
    }
    return ends[state]


@pytest.mark.parametrize("phases", ORDERS)
@pytest.mark.parametrize("number", NUMBERS)
def test_phases_exit_at_once_then_raise_then_ignore(number: int, phases: tuple[str, ...]) -> None:
    assert ended(number, DEFAULT, phases) == expected(number, phases)


@pytest.mark.parametrize(("before", "answer"), [(IGNORED, "nothing"), (FOREIGN, "heard")])
@pytest.mark.parametrize("number", NUMBERS)
def test_ignored_signals_and_foreign_handlers_stay(number: int, before: str, answer: str) -> None:
    for phases in ((), PHASES[:1], PHASES):
        assert ended(number, before, phases) == (0, answer, b""), phases


NOTED = {
    (): (0, "False", b""),
    (0.0,): (0, "True", b""),
    (0.0, 0.9): (0, "True", b""),
    (0.0, 1.1): (0, "KeyboardInterrupt: ", b""),
    (0.0, 0.5, 0.6): (0, "KeyboardInterrupt: ", b""),
}
"""Seconds between signals, and how the block ends that asks after them."""


def noted(number: int, waits: tuple[float, ...], *, asked: bool = True) -> str:
    """Return what the block notes once the signals were sent; the earlier handlers are restored after it."""
    begin(signal.SIGINT, DEFAULT)
    interrupts.exit_at_once()
    interrupts.raise_once()
    before, clock, was_requested = signal.getsignal(number), 1000.0, False
    with interrupts.record_interrupts() as requested:
        assert not requested()
        for wait in waits:
            clock += wait
            with mock.patch.object(interrupts.time, "monotonic", lambda now=clock: now):
                os.kill(os.getpid(), number)
        was_requested = requested() if asked else False
    assert signal.getsignal(number) == before
    return str(was_requested)


@pytest.mark.parametrize("number", NUMBERS)
def test_noted_interrupt_is_returned_and_a_second_one_a_second_later_raises(number: int) -> None:
    repeated = dict.fromkeys(NOTED, (0, "True", b"")) | {(): NOTED[()]}  # by a scheduler or the kernel, not by a user
    expected = repeated if number in WARNINGS else NOTED
    assert {waits: child(partial(noted, number, waits)) for waits in NOTED} == expected
    assert child(lambda: noted(number, (0.0,), asked=False)) == (0, "KeyboardInterrupt: ", b"")


def test_warning_of_a_scheduler_does_not_make_the_next_interrupt_a_second_one() -> None:
    """SIGTERM a minute after SIGUSR1 finds the run still in its step; another SIGTERM ends it at once."""

    def work(terms: int) -> str:
        begin(signal.SIGTERM, DEFAULT)
        interrupts.exit_at_once()
        interrupts.raise_once()
        with interrupts.record_interrupts() as requested:
            for clock, number in enumerate([signal.SIGUSR1, *[signal.SIGTERM] * terms]):
                with mock.patch.object(interrupts.time, "monotonic", lambda now=60.0 * clock: now):
                    os.kill(os.getpid(), number)
            return str(requested())

    assert child(lambda: work(1)) == (0, "True", b"")
    assert child(lambda: work(2)) == (0, "KeyboardInterrupt: ", b"")


@pytest.mark.parametrize(("wait", "answer"), [(0.9, "nothing"), (1.1, "interrupt")])
def test_noted_interrupt_and_one_after_the_block_count_as_one_within_a_second(wait: float, answer: str) -> None:
    number = signal.SIGTERM

    def work() -> str:
        begin(signal.SIGINT, DEFAULT)
        interrupts.exit_at_once()
        interrupts.raise_once()
        with (
            mock.patch.object(interrupts.time, "monotonic", lambda: 1000.0),
            interrupts.record_interrupts() as requested,
        ):
            os.kill(os.getpid(), number)
            assert requested()
        with mock.patch.object(interrupts.time, "monotonic", lambda: 1000.0 + wait):
            return sent(number, [])

    assert child(work) == (0, answer, b"")


def test_handler_of_children_is_not_called_after_an_interrupt_until_the_block_ends() -> None:
    def work() -> str:
        begin(signal.SIGTERM, DEFAULT)
        interrupts.exit_at_once()
        interrupts.raise_once()
        deaths: list[str] = []
        with interrupts.record_interrupts() as requested:
            signal.signal(signal.SIGCHLD, lambda number, frame: deaths.append(str(requested())))
            subprocess.run(["true"], check=True)
            os.kill(os.getpid(), signal.SIGTERM)
            subprocess.run(["true"], check=True)
            deaths.append(f"requested {requested()}")
        subprocess.run(["true"], check=True)
        return ", ".join(deaths)

    assert child(work) == (0, "False, requested True, True", b"")


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
    gather = distillation.gather

    def gathered(*arguments: Any) -> Any:
        if when == "before the run":
            interrupt(number)
        return gather(*arguments)

    def act() -> str:
        with mock.patch.object(distillation, "gather", gathered):
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
