"""Attacks on the phases of interrupt handling, with real signals. The subject is `reference_trainer.interrupts`."""

from __future__ import annotations

import itertools
import signal
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.support.signalled import AT_ONCE, DEFAULT, FOREIGN, IGNORED, NUMBERS, begin, child, sent

PHASES = ("exit_at_once", "raise_once", "ignore")
ORDERS = [order for count in range(4) for order in itertools.permutations(PHASES, count)]


def falsify_phases_handle_interrupts(subject: Any) -> None:
    """Exit at once, then raise, then ignore; a signal that was ignored or has a foreign handler is left alone."""
    for number, before, phases in itertools.product(NUMBERS, (DEFAULT, IGNORED, FOREIGN), ORDERS):
        _assert_expected(subject, number, before, phases)
    for number in NUMBERS:
        _assert_expected(subject, number, DEFAULT, ("exit_at_once",), deaf=True)


def _assert_expected(subject: Any, number: int, before: str, phases: tuple[str, ...], deaf: bool = False) -> None:
    def work() -> str:
        heard = begin(number, before)
        for phase in phases:
            getattr(subject, phase)()
        return sent(number, heard)

    code, answer, complaints = _expected(number, before, phases)
    ended = child(work, deaf=deaf)
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
        follows = {"exit_at_once": {"usual": "leave"}, "raise_once": {"leave": "once"}}
        follows["ignore"] = {"leave": "deaf", "once": "deaf"}
        state = follows[phase].get(state, state)
    usual = (0, "interrupt", b"") if number == signal.SIGINT else (signal.Signals(number).name, "", b"")
    return {"usual": usual, "leave": (130, "", AT_ONCE), "once": (0, "interrupt", b""), "deaf": (0, "nothing", b"")}[
        state
    ]


@given(waits=st.lists(st.floats(0, 5) | st.sampled_from([2.99, 3.0, 3.01]), min_size=1, max_size=5), numbers=st.data())
def falsify_repeated_interrupts_count_as_one(subject: Any, waits: list[float], numbers: Any) -> None:
    """An interrupt within 3 s after one that was raised is ignored; a later one is raised."""
    chosen = [numbers.draw(st.sampled_from(NUMBERS)) for _ in waits]
    at, expected, last = 1000.0, list[str](), -1000.0
    for wait in waits:
        at += wait
        expected.append("interrupt" if at - last > 3 else "nothing")
        last = at if expected[-1] == "interrupt" else last

    def work() -> str:
        begin(signal.SIGINT, DEFAULT)
        subject.exit_at_once()
        subject.raise_once()
        clock, seen = 1000.0, list[str]()
        for wait, number in zip(waits, chosen, strict=True):
            clock += wait
            with mock.patch.object(subject.time, "monotonic", lambda now=clock: now):
                seen.append(sent(number, []))
        return " ".join(seen)

    ended = child(work)
    assert ended == (0, " ".join(expected), b""), f"after waits of {waits} s: {ended}; expected {expected}"
