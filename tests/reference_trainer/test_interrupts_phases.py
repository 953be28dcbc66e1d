"""The phases of interrupt handling, with real signals."""

import itertools
import os
import signal
import subprocess
from functools import partial
from unittest import mock

import pytest

from reference_trainer import interrupts
from tests.reference_trainer.signalled import AT_ONCE, DEFAULT, FOREIGN, IGNORED, NUMBERS, begin, child, sent

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
    follows = {
        "exit_at_once": {"usual": "leave"},
        "raise_once": {"leave": "once"},
        "ignore": {"leave": "ignored", "once": "ignored"},
    }
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
    before, clock, told = signal.getsignal(number), 1000.0, False
    with interrupts.noted() as requested:
        assert not requested()
        for wait in waits:
            clock += wait
            with mock.patch.object(interrupts.time, "monotonic", lambda now=clock: now):
                os.kill(os.getpid(), number)
        told = requested() if asked else False
    assert signal.getsignal(number) == before
    return str(told)


@pytest.mark.parametrize("number", NUMBERS)
def test_noted_interrupt_is_returned_and_a_second_one_a_second_later_raises(number: int) -> None:
    assert {waits: child(partial(noted, number, waits)) for waits in NOTED} == NOTED
    assert child(lambda: noted(number, (0.0,), asked=False)) == (0, "KeyboardInterrupt: ", b"")


@pytest.mark.parametrize(("wait", "answer"), [(0.9, "nothing"), (1.1, "interrupt")])
def test_noted_interrupt_and_one_after_the_block_count_as_one_within_a_second(wait: float, answer: str) -> None:
    number = signal.SIGTERM

    def work() -> str:
        begin(signal.SIGINT, DEFAULT)
        interrupts.exit_at_once()
        interrupts.raise_once()
        with mock.patch.object(interrupts.time, "monotonic", lambda: 1000.0), interrupts.noted() as requested:
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
        with interrupts.noted() as requested:
            signal.signal(signal.SIGCHLD, lambda number, frame: deaths.append(str(requested())))
            subprocess.run(["true"], check=True)
            os.kill(os.getpid(), signal.SIGTERM)
            subprocess.run(["true"], check=True)
            deaths.append(f"requested {requested()}")
        subprocess.run(["true"], check=True)
        return ", ".join(deaths)

    assert child(work) == (0, "False, requested True, True", b"")
