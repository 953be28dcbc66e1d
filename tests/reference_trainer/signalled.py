"""Child processes that receive real signals, and their exit."""

import importlib
import os
import signal
from collections.abc import Callable
from typing import Any

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DEFAULT, IGNORED, FOREIGN = "as Python sets it", "ignored from the start", "another program's"
AT_ONCE = b"error: interrupted\n"


def child(work: Callable[[], str]) -> tuple[int | str, str, bytes]:
    """Run `work` in a fork; return its exit code or signal name, the result of `work`, and standard error."""
    (reading, writing), (hearing, telling) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        for each in (reading, hearing):
            os.close(each)
        _answer(work, writing, telling)
    for each in (writing, telling):
        os.close(each)
    with os.fdopen(reading, encoding="utf-8") as said, os.fdopen(hearing, "rb") as complaints:
        answer, heard = said.read(), complaints.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return signal.Signals(-status).name if status < 0 else status, answer, heard


def _answer(work: Callable[[], str], writing: int, telling: int) -> None:
    try:
        os.dup2(telling, 2)
        os.close(telling)
        answer = work()
    except BaseException as error:  # the child reports every exception to its parent
        answer = f"{type(error).__name__}: {error}"
    os.write(writing, answer.encode())
    os._exit(0)


def begin(number: int, before: str) -> list[int]:
    """Set the signal's initial handler; return the list to which a foreign handler appends."""
    heard: list[int] = []
    for each in NUMBERS:
        signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)
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
